"""``windtunnel tune``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from windtunnel.cli.answers import answered, bought, traded, tried
from windtunnel.cli.clock import Clock, seconds_of
from windtunnel.cli.flags import NO_FLAGS, JobFlags, JobSource, request
from windtunnel.cli.output import DEFAULT, Output, print_json, print_screen
from windtunnel.cli.reports import check_plot, check_report, write_plot, write_report
from windtunnel.cli.tuning import DEFAULT as NO_STUDY
from windtunnel.cli.tuning import Tuning
from windtunnel.errors import Fault, FormatError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from windtunnel.search.trial import Trial
    from windtunnel.store.notebook import Note

INTERRUPTED = 130
LAST = 60
"""Notes of a journal, the last ones, that a screen shows; study journal shows all."""


def tune(
    job: JobSource = None,
    /,
    *,
    vary: Annotated[
        list[str] | None, Parameter(negative="", metavar="PATH=A,B", help="Values of one axis; may be repeated.")
    ] = None,
    space: Annotated[
        str | None, Parameter(metavar="FILE", help="Axes as a mapping: a value, a list, or {min, max}.")
    ] = None,
    budget: Annotated[str, Parameter(help="Longest search, as 60 s or 5 min.")] = "10 min",
    top: Annotated[int, Parameter(help="Plans to list.")] = 10,
    out: Annotated[str | None, Parameter(metavar="FILE", help="Write the winner as a job file.")] = None,
    tuning: Tuning = NO_STUDY,
    flags: JobFlags = NO_FLAGS,
    output: Output = DEFAULT,
) -> int:
    """Every plan the framework can run: the fastest that fits, with a certificate that none is faster.

    With --proposer, --run or --study, plans are proposed and tried one by one instead, and kept in a file.
    """
    from windtunnel.cli.evidence import warn_unproven
    from windtunnel.cli.search import search_of

    target = None if tuning.target is None else seconds_of("--target", tuning.target)
    asked, clock = request(job, flags), Clock(budget)
    search = search_of(asked, tuning, vary or (), space, target, clock, top=max(1, top), output=output)
    _check_files(tuning)
    trials: Sequence[Trial] = ()
    notes: Sequence[Note] = ()
    if tuning.is_study:
        from windtunnel.cli.studies import studied

        done = studied(search, tuning, quiet=output.quiet)
        trials = [trial for trial in done.study.trials if not trial.twin]
        progress, notes = done.progress, done.notes
        document = answered(search, progress, done, tried(search, progress))
    else:
        from windtunnel.cli.every_plan import every_plan

        progress, bests = every_plan(search, quiet=output.quiet)
        document = answered(search, progress, None, traded(search, progress, bests))
    document["buys"] = bought(search, progress.best.changes) if tuning.what_if and progress.best else None
    warn_unproven(document, output)
    if tuning.plot:
        write_plot(tuning.plot, trials)
    if tuning.report:
        from windtunnel.report.journal import journal_blocks

        write_report(tuning.report, search, document, trials, journal_blocks(notes))
    print_json(document) if output.json else print_screen(_screen(document, notes), output)
    if document["best"] is None:
        return INTERRUPTED if clock.stopped else 1
    if out:
        from windtunnel.catalog.jobs import write_job

        write_job(out, document["best"]["job"])
    return INTERRUPTED if clock.stopped else 0


def _screen(document: Mapping[str, Any], notes: Sequence[Note]) -> RenderableType:
    from windtunnel.report.journal import journal_text
    from windtunnel.report.study import study_text
    from windtunnel.report.tune import answer_text

    told = [journal_text(notes[-LAST:])] if notes else []
    return answer_text(document, [*study_text(document), *told])


def _check_files(tuning: Tuning) -> None:
    """Names of files that cannot become what is asked for are told before the search."""
    if tuning.report:
        check_report(tuning.report)
    if tuning.plot:
        check_plot(tuning.plot)
        if not tuning.is_study:
            rule = "an exhaustive search has no trials to draw"
            raise FormatError(Fault("--plot", tuning.plot, rule, "name proposers, as --proposer seed,local"))
