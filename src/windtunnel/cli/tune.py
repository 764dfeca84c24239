"""``windtunnel tune``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from windtunnel.cli.clock import Clock, StatusLine, seconds_of
from windtunnel.cli.flags import NO_FLAGS, JobFlags, JobSource, Request, request
from windtunnel.cli.output import DEFAULT, Output, print_json, print_screen
from windtunnel.cli.tuning import DEFAULT as NO_STUDY
from windtunnel.cli.tuning import Tuning
from windtunnel.cli.workers import RUN, Workers, processors
from windtunnel.errors import Fault, FormatError, LegalityError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from windtunnel.cli.studies import Studied
    from windtunnel.job.job import Job
    from windtunnel.search.examine import Examiner
    from windtunnel.search.exhaustive import Plan, Progress
    from windtunnel.search.objective import Goal
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
    tuning: Tuning = NO_STUDY,
    flags: JobFlags = NO_FLAGS,
    output: Output = DEFAULT,
) -> int:
    """Every plan the framework can run: the fastest that fits, with a certificate that none is faster.

    With --proposer, --run or --study, plans are proposed and tried one by one instead, and kept in a file.
    """
    from windtunnel.search.objective import goal
    from windtunnel.search.slices import with_fewer_accelerators
    from windtunnel.search.space import default_space

    asked = request(job, flags)
    base = asked.load()
    axes = _bounded(default_space(base), vary or (), space)
    _check_values(asked, base, axes)
    target = None if tuning.target is None else seconds_of("--target", tuning.target)
    aim = goal(tuning.objectives, base, target)
    if aim.objectives[0].name == "accelerators":
        axes = with_fewer_accelerators(axes, base)
    _check_plot(tuning)
    clock = Clock(budget)
    search = _Search(asked=asked, base=base, axes=axes, aim=aim, clock=clock, top=max(1, top), output=output)
    if tuning.is_study:
        from windtunnel.cli.studies import studied

        done = studied(asked, base, axes, aim, tuning, clock, top=search.top, quiet=output.quiet)
        document = _answer(search, done.progress, done, _traded(search, done.progress, ()))
        if tuning.plot:
            from windtunnel.catalog.writing import write_whole
            from windtunnel.report.search_plot import search_svg

            write_whole(tuning.plot, [search_svg(done.study.trials)])
    else:
        progress, bests = _every_plan(search)
        document = _answer(search, progress, None, _traded(search, progress, bests))
    document["buys"] = _buys(search, document["best"]) if tuning.what_if and document["best"] else None
    print_json(document) if output.json else print_screen(_screen(document), output)
    if document["best"] is None:
        return INTERRUPTED if clock.stopped else 1
    if out:
        from windtunnel.catalog.jobs import write_job

        write_job(out, document["best"]["job"])
    return INTERRUPTED if clock.stopped else 0


def _buys(search: _Search, best: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What a larger cluster would buy over the best plan."""
    from windtunnel.catalog.dump import job_to_mapping
    from windtunnel.catalog.jobs import load_job
    from windtunnel.projection.project import project
    from windtunnel.search.buys import buys
    from windtunnel.store.journal import InMemory

    found = buys(project(load_job(best["job"])), search.asked.vary, InMemory(job_to_mapping), search.clock.over)
    return [asdict(item) for item in found]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """What is asked for."""

    asked: Request
    base: Job
    axes: Space
    aim: Goal
    clock: Clock
    top: int
    output: Output

    def job_of(self, plan: Plan) -> Job:
        return self.asked.vary(plan.changes)


def _screen(document: Mapping[str, Any]) -> RenderableType:
    from windtunnel.report.study import study_text
    from windtunnel.report.tune import answer_text

    return answer_text(document, study_text(document))


def _traded(search: _Search, progress: Progress, bests: Sequence[Plan]) -> list[Plan]:
    """Plans that may be on the front of the objectives: the best of each slice, and where memory counts, what trades it
    against time, timed exactly."""
    from windtunnel.projection.project import project
    from windtunnel.search.exhaustive import Plan, pareto

    names = {objective.name for objective in search.aim.objectives}
    if len(names) == 1:
        return []
    found = [*bests, *progress.found]
    for _, peak, changes in pareto(progress) if "memory" in names else ():
        seconds = project(search.asked.vary(changes)).step_time
        found.append(Plan(changes=changes, step_time=seconds, peak_device=peak))
    return found


def _answer(search: _Search, progress: Progress, done: Studied | None, candidates: Sequence[Plan]) -> dict[str, Any]:
    """The document of an answer, or of why there is none."""
    from windtunnel.projection.project import project
    from windtunnel.report.study import study_document
    from windtunnel.report.tune import answer_document
    from windtunnel.search.answer import attribution, changed, sensitivity
    from windtunnel.search.close_call import CLOSE, close_call, shape
    from windtunnel.search.minimum import infeasible, minimum_accelerators

    asked, base, clock = search.asked, search.base, search.clock
    seconds, interrupted, baseline = clock.elapsed, clock.stopped, project(search.base)
    if progress.best is None:
        lacking = infeasible(base, progress, asked.vary, clock.over)
        document = answer_document(
            baseline, None, progress, seconds, infeasible=lacking, interrupted=interrupted, accelerators=None
        )
        return document | study_document(search.aim, progress, search.job_of, baseline, None, done)
    changes = progress.best.changes
    best = project(asked.load(changes))
    neighbours = () if interrupted else sensitivity(best, changes, search.axes, asked.vary)
    near = [plan for plan in progress.found[1:] if plan.step_time <= (1 + CLOSE) * progress.best.step_time]
    document = answer_document(
        baseline,
        best,
        progress,
        seconds,
        steps=attribution(baseline, changed(base, changes, asked.vary), asked.vary),
        neighbours=neighbours,
        accelerators=None if interrupted else minimum_accelerators(base, asked.vary, clock.over),
        interrupted=interrupted,
    )
    return document | study_document(
        search.aim,
        progress,
        search.job_of,
        baseline,
        best,
        done,
        candidates=candidates,
        call=close_call(best, [project(search.job_of(plan)) for plan in near]),
        basin=shape(neighbours),
    )


def _every_plan(search: _Search) -> tuple[Progress, list[Plan]]:
    """The exhaustive search, slice by slice where the objective is not the step time alone; and each slice's best."""
    from windtunnel.search.examine import Examiner
    from windtunnel.search.exhaustive import Progress
    from windtunnel.search.slices import merge, slices

    if search.aim.objectives[0].name == "memory":
        remedy = "use --proposer seed,local, or see the front of a search for throughput"
        raise FormatError(Fault("--objective", "memory", "has no bound that an exhaustive search could use", remedy))
    parts = list(slices(search.axes))
    single = [objective.name for objective in search.aim.objectives] == ["accelerators"]
    total, ended = Progress(), list[bool]()
    bests: list[Plan] = []
    for part in parts:
        one = Progress()
        _run(Examiner(job=search.base, space=part, vary=search.asked.vary, top=search.top), one, search)
        if len(parts) == 1 and search.aim.target is None:
            return one, []
        bests += one.found[:1]
        merge(total, one, search.top, search.aim, search.job_of)
        ended.append(one.certified)
        if search.clock.over() or (total.best is not None and single):
            break
    total.certified = all(ended) and not search.clock.over()
    return total, bests


def _run(examiner: Examiner, progress: Progress, search: _Search) -> None:
    """Search on all processors with a status line on a terminal; Ctrl-C and SIGTERM end it and keep what was found."""
    from windtunnel.search.exhaustive import Exhaustive

    def said() -> str:
        best = f", best {progress.best.step_time:.3f} s" if progress.best else ""
        return f"{progress.phase}: {progress.evaluated:,} plans of {progress.enumerated:,}{best}"

    line = StatusLine(search.clock, said, quiet=search.output.quiet)
    workers = Workers(examiner, processors()) if _is_large(examiner) and processors() > 1 else None
    try:
        with search.clock.stoppable():
            search_all = Exhaustive(examiner=examiner, spread=workers, run_length=RUN if workers else 1)
            search_all.run(progress, search.clock.over, line.tick)
    finally:
        if workers is not None:
            workers.close()
        line.clear()


def _check_plot(tuning: Tuning) -> None:
    if tuning.plot is None:
        return
    if not tuning.plot.endswith(".svg"):
        raise FormatError(Fault("--plot", tuning.plot, "a search is drawn as SVG", "name a file that ends in .svg"))
    if not tuning.is_study:
        rule = "an exhaustive search has no trials to draw"
        raise FormatError(Fault("--plot", tuning.plot, rule, "name proposers, as --proposer seed,local"))


SMALL = 200
"""Grid points that one process looks at sooner than others start."""


def _is_large(examiner: Examiner) -> bool:
    return len(examiner.grid) > SMALL


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


def _check_values(asked: Request, base: Job, axes: Space) -> None:
    """Every value the user named can be read: a misspelt name is a fault, not an illegal plan.

    Raises FormatError and MissingError; what is only illegal alone may be legal with other values.
    """
    from windtunnel.search.space import default_space

    own = {axis.path: axis.values for axis in default_space(base).axes}
    for axis in axes.axes:
        for value in () if own.get(axis.path) == axis.values else axis.values:
            if axis.path not in SPECIAL:
                with suppress(LegalityError):
                    asked.vary({axis.path: value})


SPECIAL = ("plan.pipeline.layout", "plan.sharding.shard_size")
"""Axes with words of their own, as ``balanced`` and ``divisors``."""


def _values(path: str, value: object, axes: Space) -> Sequence[Any]:
    if isinstance(value, Mapping) and value.keys() <= {"min", "max"}:
        own = next((axis.values for axis in axes.axes if axis.path == path), ())
        low, high = value.get("min", float("-inf")), value.get("max", float("inf"))
        return [item for item in own if isinstance(item, int | float) and low <= item <= high]
    return list(value) if isinstance(value, list | tuple) else [value]
