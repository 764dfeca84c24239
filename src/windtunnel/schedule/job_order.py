"""The order a job runs: its schedule, as its software spells it."""

from __future__ import annotations

from windtunnel.job.job import Job
from windtunnel.schedule.action import Order
from windtunnel.schedule.registry import build_order


def job_order(job: Job) -> Order:
    """The order of the job's schedule; cached. Raises LegalityError where it does not apply.

    The heuristic zero-bubble schedule is capped at the memory of 1F1B, one stage's worth of micro-batches a stage.
    """
    pipeline, stages = job.plan.pipeline, job.plan.parallel.pp
    return build_order(
        pipeline.schedule,
        stages,
        job.plan.num_microbatches,
        pipeline.virtual_stages,
        microbatch_group_size=pipeline.microbatch_group_size,
        memory_cap=stages,
        orders=pipeline.orders,
        all_forward_at_m_equals_p=job.software.traits.all_forward_at_m_equals_p,
    )
