"""``windtunnel calibrate``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from windtunnel.cli.output import DEFAULT, Output, print_json, print_note, print_screen
from windtunnel.errors import Fault, MissingError

if TYPE_CHECKING:
    from windtunnel.calibration.fit import Evaluate, Floats, Trial
    from windtunnel.job.record import Record

PROCESSES = 2

_records: tuple[Record, ...] = ()
"""What a process of the pool projects; set once when it starts."""


def calibrate(
    *records: Annotated[str, Parameter(help="Files or folders of ground-truth records, or one profile.")],
    accelerator: Annotated[
        str | None, Parameter(help="Whose data file a profile fits; without it the one its device is called by.")
    ] = None,
    out: Annotated[str | None, Parameter(help="Folder for what was fitted; without it nothing is written.")] = None,
    output: Output = DEFAULT,
) -> int:
    """Refit the constants of the simulated source on records: sources left out in turn, constants refused that do not
    help. Or fit the shares of its peaks that an accelerator sustains, on a profile."""
    from windtunnel.catalog.profiles import is_profile

    if len(records) == 1 and is_profile(records[0]):
        from windtunnel.cli.fitted import fit_profile

        return fit_profile(records[0], accelerator, out, output)
    return _refit(records, out, output)


def _refit(records: tuple[str, ...], out: str | None, output: Output) -> int:
    from windtunnel.catalog.calibration import constants_text, errors_document, evidence
    from windtunnel.catalog.records import SkippedRecord, load_records
    from windtunnel.catalog.writing import write_whole
    from windtunnel.records.calibrate import calibrate as refit
    from windtunnel.records.calibrate import comparable, free_constants
    from windtunnel.records.refit import runs_of
    from windtunnel.report.calibrate import calibration_document, calibration_text

    if not records:
        raise MissingError(Fault("RECORDS", "", "no file was given", "name files of records, or one profile"))
    if out is not None and not Path(out).is_dir():
        raise MissingError(Fault("--out", out, "its folder does not exist", "create the folder first"))
    rules = evidence()
    loaded = [record for record in load_records(records) if not isinstance(record, SkippedRecord)]
    runs = runs_of(loaded, rules.doubtful)
    if len(runs.sources) < 2:
        rule = "leaving a source out takes runs with a speed from two files or more"
        raise MissingError(Fault("RECORDS", " ".join(records)[:80], rule, "name more files of records"))
    with _pool(runs.records) as evaluate:
        found = refit(runs, free_constants(), rules.only, evaluate)
    if out is not None:
        write_whole(Path(out, "simulated.yaml"), [constants_text(found.constants)])
        table = json.dumps(errors_document(comparable(found)), indent=1) + "\n"
        write_whole(Path(out, "errors.json"), [table])
        print_note(f"wrote simulated.yaml and errors.json in {out}", output)
    document = calibration_document(found.constants, found.summary(), found.rows())
    if output.json:
        print_json(document)
    else:
        print_screen(calibration_text(document), output)
    return 0


@contextmanager
def _pool(records: tuple[Record, ...]) -> Iterator[Evaluate]:
    """Evaluates sets of constants on two processes that hold the records."""
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(PROCESSES, initializer=_hold, initargs=(records,)) as pool:
        yield lambda trials: list(pool.map(_errors, trials))


def _hold(records: tuple[Record, ...]) -> None:
    global _records  # noqa: PLW0603  the pool's own memory: sent once, not with every set of constants
    _records = records


def _errors(trial: Trial) -> Floats:
    from windtunnel.records.refit import log_errors

    return log_errors(_records, *trial)
