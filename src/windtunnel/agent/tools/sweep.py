"""The tool that scores a whole sub-space by the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import prod
from typing import Any

from windtunnel.agent import views
from windtunnel.agent.bench import Bench
from windtunnel.agent.gaps import Gaps, gaps
from windtunnel.errors import Fault, FormatError, LegalityError
from windtunnel.projection.choices import SHARD_SIZE, Changes
from windtunnel.search.examine import Examiner
from windtunnel.search.exhaustive import Exhaustive, Progress, pareto
from windtunnel.search.space import BALANCED, EVEN, LAYOUT, Axis, Space

MOST_GRID = 2_000
"""Points of the axes that decide which chunks there are; every one is a job to be built."""
MOST_PLANS = 200_000
MOST_VALUES = 200
FRONT = 6
CORRECTED = 400
"""Plans by the model among which those corrected by trials are looked for."""


def sweep(
    bench: Bench, *, axes: Mapping[str, Sequence[Any]], around: Changes, top: int, corrected: bool
) -> dict[str, Any]:
    """Scored as the exhaustive search does, with its bounds and exact times."""
    plan = bench.written(around)
    space = Space(tuple(Axis(path, tuple(values)) for path, values in axes.items()))
    _bounded(space)
    _readable(bench, space)
    examiner = Examiner(
        job=bench.vary(plan),
        space=space,
        vary=lambda more: bench.vary({**plan, **dict(more)}),
        top=CORRECTED if corrected else top,
    )
    progress = Progress()
    Exhaustive(examiner=examiner).run(progress, bench.stop, lambda: None)
    return {
        "plans": progress.enumerated,
        "legal": progress.legal,
        "fit": progress.evaluated,
        "complete": progress.certified,
        "fastest": _listed(bench, progress, {**around}, axes, top, corrected=corrected),
        "front": [
            {"about_s": views.figure(time, 4), "peak_gib": views.gib(peak)}
            for time, peak, _ in pareto(progress, examiner.job.cluster.num_accelerators)[:FRONT]
        ],
        "least_memory_gib": None if progress.smallest is None else views.gib(progress.smallest.peak_device),
    }


def _listed(
    bench: Bench, progress: Progress, around: Changes, axes: Mapping[str, Any], top: int, *, corrected: bool
) -> list[dict[str, Any]]:
    """The fastest plans, by the model or by what the trials make of it; those tried are marked."""
    plans = [({**around, **_named(found.changes, axes)}, found) for found in progress.found]
    learnt = gaps(bench) if corrected else None
    if learnt is not None:
        plans.sort(key=lambda pair: pair[1].step_time * learnt.promise(pair[0]))
    tried = {bench.key(trial.changes) for trial in bench.trials} - {None}
    best = bench.best
    seconds = None if best is None or not bench.simulated else best.outcome.step_time
    return [
        {
            "step_time_s": views.figure(found.step_time),
            **({} if learnt is None else _corrected(found.step_time, learnt, changes)),
            "peak_gib": views.gib(found.peak_device),
            **({"against_best": views.percent(found.step_time / seconds - 1)} if seconds else {}),
            **({"tried": True} if bench.key(changes) in tried else {}),
            "changes": changes,
        }
        for changes, found in plans[:top]
    ]


def _named(changes: Changes, axes: Mapping[str, Any]) -> Changes:
    """What the sub-space decides; switches without a meaning beside the others stay as they were."""
    return {path: value for path, value in changes.items() if path in axes}


def _readable(bench: Bench, space: Space) -> None:
    """Raises FormatError or MissingError for a value that no job can have; one that is only illegal alone may pass."""
    for axis in space.axes:
        for value in axis.values:
            if (axis.path, value) not in WORDS:
                with suppress(LegalityError):
                    bench.vary({axis.path: value})


def _corrected(seconds: float, learnt: Gaps, changes: Changes) -> dict[str, Any]:
    return {
        "corrected_s": views.figure(seconds * learnt.factor(changes)),
        "at_best_s": views.figure(seconds * learnt.promise(changes)),
    }


WORDS = ((LAYOUT, EVEN), (LAYOUT, BALANCED), (SHARD_SIZE, "divisors"))
"""Values with a meaning on an axis only."""


def _bounded(space: Space) -> None:
    """Raises FormatError for a sub-space that takes too long."""
    if sum(len(axis.values) for axis in space.axes) > MOST_VALUES:
        raise FormatError(Fault("axes", "", f"more than {MOST_VALUES} values", "name fewer at once"))
    grid = len(space.grid)
    plans = grid * prod(len(values) for values in space.inner.values())
    if grid > MOST_GRID or plans > MOST_PLANS:
        rule = f"{plans:,} plans of {grid:,} grid points are more than {MOST_PLANS:,} of {MOST_GRID:,}"
        raise FormatError(Fault("axes", "", rule, "name fewer axes or values, and sweep the others afterwards"))
