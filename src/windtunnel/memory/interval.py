"""How far a measured peak lies from the projected one: the interval that four runs in five fall into."""

from __future__ import annotations

from windtunnel.job.job import Job

LEVEL = 0.8
"""Share of published runs inside the interval."""


def residuals(job: Job) -> tuple[float, float]:
    """Low and high end of measured over projected bytes, from published runs of the framework and kind of model.

    FSDP that stays gathered under a pipeline has residuals of its own.
    """
    traits, plan = job.software.traits, job.plan
    low, high = traits.dense_residual_low, traits.dense_residual_high
    if job.model.is_moe:
        low, high = traits.moe_residual_low, traits.moe_residual_high
    if traits.unsharded_under_pipeline and plan.sharding.shards_parameters and plan.parallel.pp > 1:
        return low, max(high, job.constants.memory.unsharded_residual)
    return low, high
