"""The answer of a search put together: what was found, why it is better, how sure it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from windtunnel.cli.search import Search
    from windtunnel.cli.studies import Studied
    from windtunnel.search.exhaustive import Plan, Progress


def answered(search: Search, progress: Progress, done: Studied | None, candidates: Sequence[Plan]) -> dict[str, Any]:
    """The document of an answer, or of why there is none."""
    from windtunnel.report.study import study_document
    from windtunnel.report.tune import answer_document
    from windtunnel.search.answer import attribution, changed, sensitivity
    from windtunnel.search.close_call import CLOSE, close_call, shape
    from windtunnel.search.minimum import infeasible, minimum_accelerators

    asked, base, clock, projected = search.asked, search.base, search.clock, search.evidence.projected
    seconds, interrupted, baseline = clock.elapsed, clock.stopped, projected(base)
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


def traded(search: Search, progress: Progress, bests: Sequence[Plan]) -> list[Plan]:
    """Plans that may be on the front of the objectives: the best of each slice, and where memory counts, what trades it
    against time, timed exactly."""
    from windtunnel.projection.project import project
    from windtunnel.search.exhaustive import Plan, pareto

    names = {objective.name for objective in search.aim.objectives}
    if len(names) == 1:
        return []
    found = [*bests, *progress.found]
    for _, peak, changes in pareto(progress, search.base.cluster.num_accelerators) if "memory" in names else ():
        seconds = project(search.asked.vary(changes)).step_time
        found.append(Plan(changes=changes, step_time=seconds, peak_device=peak))
    return found


def tried(search: Search, progress: Progress) -> list[Plan]:
    """Plans of a study that may be on the front of its objectives, as its oracle answered."""
    from windtunnel.search.exhaustive import Plan

    if len(search.aim.objectives) == 1:
        return []
    return [Plan(changes=changes, step_time=time, peak_device=peak) for time, peak, changes in progress.front]


def bought(search: Search, best: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What a larger cluster would buy over the best plan, both by the model."""
    from windtunnel.catalog.dump import job_to_mapping
    from windtunnel.catalog.rates import rates
    from windtunnel.projection.project import project
    from windtunnel.search.buys import buys
    from windtunnel.store.journal import InMemory

    projection, journal = project(search.asked.load(best)), InMemory(job_to_mapping)
    found = buys(projection, search.asked.vary, rates(), journal, search.clock.over)
    return [asdict(item) for item in found]
