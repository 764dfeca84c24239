"""``windtunnel tune``."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from windtunnel.cli.flags import NO_FLAGS, JobFlags, JobSource, request
from windtunnel.cli.output import DEFAULT, Output, print_json, print_screen
from windtunnel.cli.workers import Workers, processors
from windtunnel.errors import Fault, FormatError

if TYPE_CHECKING:
    from windtunnel.search.examine import Examiner
    from windtunnel.search.exhaustive import Progress
    from windtunnel.search.space import Space

INTERRUPTED = 130


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
    flags: JobFlags = NO_FLAGS,
    output: Output = DEFAULT,
) -> int:
    """Every plan the framework can run: the fastest that fits, with a certificate that none is faster."""
    from windtunnel.projection.project import project
    from windtunnel.report.tune import answer_document, answer_text
    from windtunnel.search.answer import attribution, changed, sensitivity
    from windtunnel.search.examine import Examiner
    from windtunnel.search.exhaustive import Progress
    from windtunnel.search.minimum import infeasible, minimum_accelerators
    from windtunnel.search.space import default_space

    asked = request(job, flags)
    base = asked.load()
    axes = _bounded(default_space(base), vary or (), space)
    clock = _Clock(budget)
    progress = Progress()
    interrupted = _run(Examiner(job=base, space=axes, vary=asked.vary, top=max(1, top)), progress, clock, output)
    seconds = clock.elapsed
    baseline = project(base)
    if progress.best is None:
        lacking = infeasible(base, progress, asked.vary, clock.over)
        document = answer_document(
            baseline, None, progress, seconds, infeasible=lacking, interrupted=interrupted, accelerators=None
        )
        print_json(document) if output.json else print_screen(answer_text(document), output)
        return INTERRUPTED if interrupted else 1
    changes = changed(base, progress.best.changes, asked.vary)
    best = project(asked.load(progress.best.changes))
    document = answer_document(
        baseline,
        best,
        progress,
        seconds,
        steps=attribution(baseline, changes, asked.vary),
        neighbours=() if interrupted else sensitivity(best, progress.best.changes, axes, asked.vary),
        accelerators=None if interrupted else minimum_accelerators(base, asked.vary, clock.over),
        interrupted=interrupted,
    )
    print_json(document) if output.json else print_screen(answer_text(document), output)
    if out:
        _write(out, best.job)
    return INTERRUPTED if interrupted else 0


class _Clock:
    """A budget of seconds from now. Raises FormatError for a text that is no duration."""

    def __init__(self, budget: str) -> None:
        from windtunnel.units import UnitError, parse

        try:
            self._limit = parse(_spaced(budget), "time")
        except UnitError as error:
            raise FormatError(Fault("--budget", budget, error.rule, error.remedy)) from None
        self._start = time.perf_counter()
        self.stopped = False

    @property
    def elapsed(self) -> float:
        return time.perf_counter() - self._start

    def over(self) -> bool:
        return self.stopped or self.elapsed > self._limit


def _spaced(text: str) -> str:
    """``60s`` as ``60 s``."""
    digits = len(text) - len(text.lstrip("0123456789."))
    return f"{text[:digits]} {text[digits:].strip()}"


def _run(examiner: Examiner, progress: Progress, clock: _Clock, output: Output) -> bool:
    """Search on all processors with a status line on a terminal; Ctrl-C and SIGTERM end it and keep what was found.

    The first signal asks the search to stop; a second one ends the process as usual.
    """
    from windtunnel.search.exhaustive import Exhaustive

    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in previous.items():
            signal.signal(number, handler)

    def stop(_signal: int, _frame: object) -> None:
        clock.stopped = True
        restore()

    show = not output.quiet and sys.stderr.isatty()
    shown = [0.0]

    def tick() -> None:
        if show and clock.elapsed - shown[0] > 0.2:
            shown[0] = clock.elapsed
            best = f", best {progress.best.step_time:.3f} s" if progress.best else ""
            sys.stderr.write(f"\r{progress.phase}: {progress.evaluated:,} plans of {progress.enumerated:,}{best}\x1b[K")
            sys.stderr.flush()

    workers = Workers(examiner, processors()) if _is_large(examiner) and processors() > 1 else None
    for number in previous:
        signal.signal(number, stop)
    try:
        Exhaustive(examiner=examiner, spread=workers).run(progress, clock.over, tick)
    finally:
        restore()
        if workers is not None:
            workers.close()
        if show:
            sys.stderr.write("\r\x1b[K")
    return clock.stopped


SMALL = 200
"""Grid points that one process looks at sooner than others start."""


def _is_large(examiner: Examiner) -> bool:
    return len(list(islice(examiner.space.points(), SMALL + 1))) > SMALL


def _bounded(axes: Space, vary: Sequence[str], file: str | None) -> Space:
    """The default space, then the file's axes, then the command line's."""
    from windtunnel.catalog.files import JOB_LIMIT, read_yaml
    from windtunnel.catalog.overrides import parse_overrides

    values: dict[str, Sequence[Any]] = {}
    if file:
        content = read_yaml(file, limit_bytes=JOB_LIMIT)
        if not isinstance(content, Mapping):
            raise FormatError(Fault(file, "", "a space is a mapping of job paths", "write plan.parallel.tp: [1, 2, 4]"))
        values |= {str(path): _values(str(path), value, axes) for path, value in content.items()}
    for text in vary:
        path, _, listed = text.partition("=")
        if not listed.strip():
            raise FormatError(Fault("--vary", text, "an axis has values", "write --vary plan.parallel.tp=1,2,4"))
        parsed = parse_overrides([f"{path}=[{listed}]"])
        values[path] = _values(path, parsed[path], axes)
    parse_overrides([f"{path}=0" for path in values])
    return axes.pinned(values)


def _values(path: str, value: object, axes: Space) -> Sequence[Any]:
    if isinstance(value, Mapping) and value.keys() <= {"min", "max"}:
        own = next((axis.values for axis in axes.axes if axis.path == path), ())
        low, high = value.get("min", float("-inf")), value.get("max", float("inf"))
        return [item for item in own if isinstance(item, int | float) and low <= item <= high]
    return list(value) if isinstance(value, list | tuple) else [value]


def _write(path: str, job: Any) -> None:
    """The winner as a job file. Raises MissingError and FormatError where it cannot be written."""
    from windtunnel.catalog.dump import job_to_mapping
    from windtunnel.catalog.jobs import write_job

    write_job(path, job_to_mapping(job))
