"""What a search has to say: the gain explained step by step, and how sharp the optimum is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from windtunnel.errors import WindtunnelError
from windtunnel.job.job import Job
from windtunnel.projection.choices import Changes
from windtunnel.projection.project import project
from windtunnel.projection.result import Projection, Verdict
from windtunnel.search.points import Vary
from windtunnel.search.space import Space
from windtunnel.step.parts import NAMES

Projected = Callable[[Job], Projection]
"""``project`` with whatever source prices its ops."""


@dataclass(frozen=True, slots=True)
class Step:
    """Changes made together, and the seconds a step gains or loses by them: in all, and by part of the step.

    The parts are those of the busiest stage before and after; they sum to ``delta``.
    """

    changes: Changes
    delta: float
    parts: dict[str, float]


def attribution(
    baseline: Projection, changes: Mapping[str, Any], vary: Vary, projected: Projected = project
) -> tuple[Step, ...]:
    """From the baseline to the plan of ``changes``, the most helpful change first; deltas sum to the difference.

    A change that is legal only together with others is made with them.
    """
    remaining = dict(changes)
    done: Changes = {}
    now = baseline
    steps = []
    while remaining:
        tried = {path: _projected(vary, {**done, path: value}, projected) for path, value in remaining.items()}
        legal = {path: answer for path, answer in tried.items() if answer is not None}
        best = min(legal, key=lambda path: legal[path].step_time, default=None)
        group = dict(remaining) if best is None else {best: remaining[best]}
        after = _projected(vary, dict(changes), projected) if best is None else legal[best]
        assert after is not None
        done |= group
        remaining = {path: value for path, value in remaining.items() if path not in group}
        steps.append(Step(group, after.step_time - now.step_time, _difference(now, after)))
        now = after
    return tuple(steps)


def _difference(before: Projection, after: Projection) -> dict[str, float]:
    """Seconds by part that a change adds, those that change at all."""
    pairs = {name: getattr(after.time, name) - getattr(before.time, name) for name in NAMES}
    return {name: seconds for name, seconds in pairs.items() if seconds}


def changed(job: Job, changes: Mapping[str, Any], vary: Vary) -> Changes:
    """The changes that alter the job when made to it alone, or that nothing legal says about alone."""
    return {path: value for path, value in changes.items() if _alters(job, path, value, vary)}


def _alters(job: Job, path: str, value: Any, vary: Vary) -> bool:
    try:
        other = vary({path: value})
    except WindtunnelError:
        return True
    return (other.plan, other.cluster, other.software, other.model) != (
        job.plan, job.cluster, job.software, job.model
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Neighbour:
    """One axis a step away from the best plan: the relative change of step time and the verdict, None if illegal."""

    path: str
    value: Any
    delta: float | None
    verdict: Verdict | None


def sensitivity(
    best: Projection, changes: Mapping[str, Any], space: Space, vary: Vary, projected: Projected = project
) -> tuple[Neighbour, ...]:
    """The plans one value up or down on each axis."""
    found = []
    for axis in space.axes:
        if axis.path not in changes or changes[axis.path] not in axis.values:
            continue
        at = axis.values.index(changes[axis.path])
        for index in (at - 1, at + 1):
            if 0 <= index < len(axis.values):
                answer = _projected(vary, {**changes, axis.path: axis.values[index]}, projected)
                delta = None if answer is None else answer.step_time / best.step_time - 1
                verdict = None if answer is None else answer.memory.verdict
                found.append(Neighbour(axis.path, axis.values[index], delta, verdict))
    return tuple(found)


def _projected(vary: Vary, changes: Mapping[str, Any], projected: Projected) -> Projection | None:
    """The projection of the changed job, None where that is illegal."""
    try:
        return projected(vary(changes))
    except WindtunnelError:
        return None
