"""Spaces whose objective is not the step time alone: cut into parts in which it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import nsmallest
from itertools import product

from windtunnel.job.job import Job
from windtunnel.search.exhaustive import Plan, Progress
from windtunnel.search.moves import WORLD
from windtunnel.search.objective import Goal
from windtunnel.search.space import Axis, Space

FACTORS = ("cluster.", "run.", "plan.batch.global_batch_size", "plan.batch.sequence_length")
"""Axes that change what a second costs or how many tokens it must bring; among plans that agree on them the fastest is
the best by every objective but memory."""


def slices(space: Space) -> Iterator[Space]:
    """The space for each combination of its factors, fewest accelerators first."""
    factors = sorted(
        (axis for axis in space.axes if axis.path.startswith(FACTORS)), key=lambda axis: axis.path != WORLD
    )
    for values in product(*(axis.values for axis in factors)):
        yield space.pinned({axis.path: (value,) for axis, value in zip(factors, values, strict=True)})


def with_fewer_accelerators(space: Space, job: Job) -> Space:
    """The space with the job's accelerators halved as often as they can be, where it does not vary their number."""
    if any(axis.path == WORLD for axis in space.axes):
        return space
    world = job.cluster.num_accelerators
    halves = [world >> k for k in range(world.bit_length()) if world % (1 << k) == 0]
    return Space((*space.axes, Axis(WORLD, tuple(sorted(halves)))))


def merge(total: Progress, part: Progress, top: int, goal: Goal, job_of: Callable[[Plan], Job]) -> None:
    """Add what a slice came to; the best plans are those of the goal's first objective, then of the step time."""

    def rank(plan: Plan) -> tuple[float, float]:
        return goal.values(job_of(plan), plan.step_time, plan.peak_device)[0], plan.step_time

    for name in ("enumerated", "legal", "pruned", "evaluated", "exactly_timed"):
        setattr(total, name, getattr(total, name) + getattr(part, name))
    total.front += part.front
    if part.smallest is not None and (total.smallest is None or part.smallest.peak_device < total.smallest.peak_device):
        total.smallest = part.smallest
    total.found = nsmallest(top, [*total.found, *part.found], key=rank)
    total.found = [plan for plan in total.found if rank(plan)[0] < float("inf")]
    total.best = total.found[0] if total.found else None
