"""``windtunnel tune``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from windtunnel.cli.clock import Clock, seconds_of
from windtunnel.cli.flags import NO_FLAGS, JobFlags, JobSource, Request, request
from windtunnel.cli.output import DEFAULT, Output, print_json, print_screen
from windtunnel.cli.tuning import DEFAULT as NO_STUDY
from windtunnel.cli.tuning import Tuning
from windtunnel.errors import Fault, FormatError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from windtunnel.cli.evidence import Evidence
    from windtunnel.cli.studies import Studied
    from windtunnel.job.job import Job
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
    from windtunnel.cli.axes import bounded, check_values
    from windtunnel.cli.evidence import evidence_of, warn_unproven
    from windtunnel.search.objective import goal
    from windtunnel.search.slices import with_fewer_accelerators
    from windtunnel.search.space import default_space

    asked = request(job, flags)
    base = asked.load()
    axes = bounded(default_space(base), vary or (), space)
    check_values(asked, base, axes)
    asked, evidence = evidence_of(asked, base, axes, tuning, output)
    base = asked.load()
    target = None if tuning.target is None else seconds_of("--target", tuning.target)
    aim = goal(tuning.objectives, base, target)
    if aim.objectives[0].name == "accelerators":
        axes = with_fewer_accelerators(axes, base)
    _check_plot(tuning)
    clock = Clock(budget)
    search = _Search(asked=asked, base=base, axes=axes, aim=aim, clock=clock, top=max(1, top), evidence=evidence)
    if tuning.is_study:
        from windtunnel.cli.studies import studied

        done = studied(asked, base, axes, aim, tuning, clock, evidence, top=search.top, quiet=output.quiet)
        progress = done.progress
        document = _answer(search, progress, done, _tried(search, progress))
        if tuning.plot:
            from windtunnel.catalog.writing import write_whole
            from windtunnel.report.search_plot import search_svg

            write_whole(tuning.plot, [search_svg(done.study.trials)])
    else:
        from windtunnel.cli.every_plan import every_plan

        progress, bests = every_plan(asked, base, axes, aim, clock, top=search.top, quiet=output.quiet)
        document = _answer(search, progress, None, _traded(search, progress, bests))
    document["buys"] = _buys(search, progress.best.changes) if tuning.what_if and progress.best else None
    warn_unproven(document, output)
    print_json(document) if output.json else print_screen(_screen(document), output)
    if document["best"] is None:
        return INTERRUPTED if clock.stopped else 1
    if out:
        from windtunnel.catalog.jobs import write_job

        write_job(out, document["best"]["job"])
    return INTERRUPTED if clock.stopped else 0


def _buys(search: _Search, best: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What a larger cluster would buy over the best plan, both by the model."""
    from windtunnel.catalog.dump import job_to_mapping
    from windtunnel.projection.project import project
    from windtunnel.search.buys import buys
    from windtunnel.store.journal import InMemory

    found = buys(project(search.asked.load(best)), search.asked.vary, InMemory(job_to_mapping), search.clock.over)
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
    evidence: Evidence

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


def _tried(search: _Search, progress: Progress) -> list[Plan]:
    """Plans of a study that may be on the front of its objectives, as its oracle answered."""
    from windtunnel.search.exhaustive import Plan

    if len(search.aim.objectives) == 1:
        return []
    return [Plan(changes=changes, step_time=time, peak_device=peak) for time, peak, changes in progress.front]


def _answer(search: _Search, progress: Progress, done: Studied | None, candidates: Sequence[Plan]) -> dict[str, Any]:
    """The document of an answer, or of why there is none."""
    from windtunnel.report.study import study_document
    from windtunnel.report.tune import answer_document
    from windtunnel.search.answer import attribution, changed, sensitivity
    from windtunnel.search.close_call import CLOSE, close_call, shape
    from windtunnel.search.minimum import infeasible, minimum_accelerators

    asked, base, clock, projected = search.asked, search.base, search.clock, search.evidence.projected
    seconds, interrupted, baseline = clock.elapsed, clock.stopped, projected(search.base)
    if progress.best is None:
        lacking = infeasible(base, progress, asked.vary, clock.over)
        document = answer_document(
            baseline, None, progress, seconds, infeasible=lacking, interrupted=interrupted, accelerators=None
        )
        return document | study_document(search.aim, progress, search.job_of, baseline, None, done)
    changes = progress.best.changes
    best = projected(asked.load(changes))
    neighbours = () if interrupted else sensitivity(best, changes, search.axes, asked.vary, projected)
    near = [plan for plan in progress.found[1:] if plan.step_time <= (1 + CLOSE) * progress.best.step_time]
    document = answer_document(
        baseline,
        best,
        progress,
        seconds,
        steps=attribution(baseline, changed(base, changes, asked.vary), asked.vary, projected),
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
        call=close_call(best, [projected(search.job_of(plan)) for plan in near]),
        basin=shape(neighbours),
    )


def _check_plot(tuning: Tuning) -> None:
    if tuning.plot is None:
        return
    if not tuning.plot.endswith(".svg"):
        raise FormatError(Fault("--plot", tuning.plot, "a search is drawn as SVG", "name a file that ends in .svg"))
    if not tuning.is_study:
        rule = "an exhaustive search has no trials to draw"
        raise FormatError(Fault("--plot", tuning.plot, rule, "name proposers, as --proposer seed,local"))
