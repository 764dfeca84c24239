"""The largest value of a batch size that still fits, by doubling, then bisection."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import lcm

from windtunnel.errors import Fault, FormatError, LegalityError
from windtunnel.job.job import Job
from windtunnel.projection.memory import project_memory

KNOWN = ("micro_batch_size", "sequence_length")
MOST_STEPS = 2**20
"""Where the search ends even if everything fits."""
SHORTEST_STEP = 128
"""Tokens: fused attention works on tiles of this length."""

Changes = Callable[[int], Mapping[str, object]]
Load = Callable[[Mapping[str, object]], Job]


def largest_values(names: Sequence[str], job: Job, load: Load) -> dict[str, int | None]:
    """For each name the largest value whose verdict is ``fits``, everything else as in the job; None: no value fits.

    A larger micro-batch keeps the number of micro-batches, so the global batch grows with it. Sequences grow in steps
    that keep them divisible by what tensor and context parallelism cut them into. ``load`` makes the job with other
    values. Raises FormatError for other names.
    """
    for name in names:
        if name not in KNOWN:
            raise FormatError(Fault("--max", name, "not a value that can be searched", f"name {' or '.join(KNOWN)}"))
    searches = {"micro_batch_size": _micro_batch, "sequence_length": _sequence}
    return {name: _largest(*searches[name](job), load) for name in names}


def _micro_batch(job: Job) -> tuple[int, Changes]:
    replicas = job.plan.parallel.dp * job.plan.num_microbatches

    def changes(size: int) -> Mapping[str, object]:
        return {"plan.batch.micro_batch_size": size, "plan.batch.global_batch_size": size * replicas}

    return 1, changes


def _sequence(job: Job) -> tuple[int, Changes]:
    step = lcm(2 * job.plan.parallel.cp, job.plan.parallel.tp, SHORTEST_STEP)
    return step, lambda length: {"plan.batch.sequence_length": length}


def _largest(step: int, changes: Changes, load: Load) -> int | None:
    def fits(steps: int) -> bool:
        try:
            job = load(changes(steps * step))
        except LegalityError:
            return False
        return project_memory(job).verdict == "fits"

    return last_true(fits) * step or None


def last_true(holds: Callable[[int], bool]) -> int:
    """The largest n with ``holds(n)`` where it holds up to a bound and no further; 0 where it does not hold for 1."""
    low, high = 0, 1
    while high <= MOST_STEPS and holds(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
