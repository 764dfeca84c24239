"""``windtunnel validate``."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from windtunnel.cli.output import DEFAULT, Output, print_json, print_screen
from windtunnel.errors import Fault, FormatError, MissingError

if TYPE_CHECKING:
    from windtunnel.catalog.records import SkippedRecord
    from windtunnel.job.record import Record
    from windtunnel.records.compare import Checked

PROCESSES = 2
ALONE = 50
"""Up to so many records one process is faster than starting another."""


def validate(
    *records: Annotated[str, Parameter(help="Files of ground-truth records.")],
    group_by: Annotated[
        list[str] | None, Parameter(negative="", help="A job path: one more group per value; may be repeated.")
    ] = None,
    profile: Annotated[
        str | None, Parameter(help="A profile: records of its device are projected on its seconds, others are skipped.")
    ] = None,
    against: Annotated[
        str | None, Parameter(help="A file written by validate --json; exit 1 if any figure became worse.")
    ] = None,
    output: Output = DEFAULT,
) -> int:
    """Projections against measured runs: errors by group, order within series, verdicts against outcomes."""
    from windtunnel.catalog.records import load_records
    from windtunnel.records.against import moves, regressions
    from windtunnel.records.summary import summarise
    from windtunnel.report.validate import moves_text, regressions_text, validate_document, validate_text

    if not records:
        raise MissingError(Fault("RECORDS", "", "no file of records was given", "name one or more files"))
    earlier = _table(against) if against else None
    loaded = load_records(records)
    checked = _with_progress(_checked(loaded, profile), len(loaded), output)
    document = validate_document(summarise(_grouped(checked, loaded, group_by or ())))
    worse = regressions(earlier, document) if earlier is not None else ()
    moved = moves(earlier, document) if earlier is not None and worse else ()
    if output.json:
        print_json(document)
        sys.stderr.writelines(f"worse: {item.figure} {item.before:.4f} → {item.after:.4f}\n" for item in worse)
        sys.stderr.writelines(f"moved: {item.quantity} {item.id} {item.before} → {item.after}\n" for item in moved)
    else:
        print_screen(validate_text(document), output)
        if earlier is not None:
            print_screen(regressions_text([(item.figure, item.before, item.after) for item in worse]), output)
            print_screen(moves_text([(item.id, item.quantity, item.before, item.after) for item in moved]), output)
    return 1 if worse else 0


def _checked(records: Sequence[Record | SkippedRecord], profile: str | None) -> Iterator[Checked]:
    """Every record projected and compared, in order; two processes share many records."""
    if profile is not None:
        yield from _measured(records, profile)
        return
    if len(records) <= ALONE:
        yield from map(_check, records)
        return
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(PROCESSES) as pool:
        yield from pool.map(_check, records, chunksize=8)


def _check(record: Record | SkippedRecord) -> Checked:
    from windtunnel.catalog.records import SkippedRecord
    from windtunnel.records.compare import check_record, skipped

    if isinstance(record, SkippedRecord):
        return skipped(record.id, record.file, record.reason)
    return check_record(record)


def _measured(records: Sequence[Record | SkippedRecord], path: str) -> Iterator[Checked]:
    """Records of a profile's device on its seconds; those of another say nothing about it."""
    from windtunnel.catalog.profiles import read_profile
    from windtunnel.catalog.records import SkippedRecord
    from windtunnel.cost.suits import same_device
    from windtunnel.projection.measured import project_measured
    from windtunnel.records.compare import check_record, skipped

    profile = read_profile(path)
    for record in records:
        if isinstance(record, SkippedRecord):
            yield skipped(record.id, record.file, record.reason)
        elif not same_device(record.job, profile):
            yield skipped(record.id, record.file, f"not measured on {profile.device_name}")
        else:
            yield check_record(record, lambda job: project_measured(job, profile)[0])


def _grouped(
    checked: Sequence[Checked], records: Sequence[Record | SkippedRecord], paths: Sequence[str]
) -> list[Checked]:
    from windtunnel.catalog.records import SkippedRecord
    from windtunnel.records.summary import grouped

    return [
        found if isinstance(record, SkippedRecord) else grouped(found, record, paths)
        for found, record in zip(checked, records, strict=True)
    ]


def _with_progress(checked: Iterable[Checked], total: int, output: Output) -> list[Checked]:
    """All of them, with a bar on stderr where a person watches."""
    if output.quiet or not sys.stderr.isatty():
        return list(checked)
    from rich.console import Console
    from rich.progress import track

    screen = Console(stderr=True, no_color=output.no_color)
    return list(track(checked, "projecting", total=total, console=screen, transient=True))


def _table(path: str) -> Mapping[str, Any]:
    """An earlier document of ``validate --json``. Raises FormatError and MissingError."""
    from windtunnel.catalog.files import RECORDS_LIMIT, parse_json, read_text

    document = parse_json(read_text(path, RECORDS_LIMIT), path)
    if not isinstance(document, dict) or not {"records", "groups", "series", "fits"} <= document.keys():
        rule = "a table is what windtunnel validate --json prints"
        raise FormatError(Fault(path, "", rule, "write one with windtunnel validate RECORDS --json"))
    return document
