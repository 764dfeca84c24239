"""The order a job runs: its schedule, as its software spells it."""

from __future__ import annotations

from windtunnel.job.job import Job
from windtunnel.schedule.action import Order
from windtunnel.schedule.registry import build_order


def job_order(job: Job, num_microbatches: int | None = None) -> Order:
    """The order of the job's schedule; cached. Raises LegalityError where it does not apply.

    ``num_microbatches`` stands in for the job's own where only the shape of the order matters. The heuristic
    zero-bubble schedule is capped at the memory of 1F1B, one stage's worth of micro-batches a stage.
    """
    pipeline, stages = job.plan.pipeline, job.plan.parallel.pp
    return build_order(
        pipeline.schedule,
        stages,
        num_microbatches or job.plan.num_microbatches,
        pipeline.virtual_stages,
        microbatch_group_size=pipeline.microbatch_group_size,
        memory_cap=stages,
        orders=pipeline.orders,
        all_forward_at_m_equals_p=job.software.traits.all_forward_at_m_equals_p,
    )


GROWING = frozenset({"gpipe", "looped_bfs", "zb_heuristic", "custom"})
"""Schedules whose in-flight micro-batches grow with their number, or are not known to stop growing."""


def steady_microbatches(job: Job) -> tuple[int, int]:
    """The fewest micro-batches that fill the job's pipeline as all of its own do, so that in flight are the same
    counts; and as many and one group more, where the job has them.

    What is left out is whole groups, so that the last one is as incomplete as the job's.
    """
    pipeline = job.plan.pipeline
    return steady(pipeline.schedule, job.plan.parallel.pp, job.plan.num_microbatches, pipeline.microbatch_group_size)


def steady(schedule: str, num_stages: int, num_microbatches: int, microbatch_group_size: int) -> tuple[int, int]:
    """The numbers of ``steady_microbatches``: every schedule not in ``GROWING`` is full after two groups."""
    group = max(num_stages, microbatch_group_size)
    group *= 2 if schedule in ("dualpipe", "dualpipe_v") and group % 2 else 1
    if schedule in GROWING or num_microbatches < 3 * group:
        return num_microbatches, num_microbatches
    few = 2 * group + num_microbatches % group
    return few, few + group
