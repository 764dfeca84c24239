"""How far a measured peak lies from the projected one: the interval that four runs in five fall into."""

from __future__ import annotations

from math import sqrt

from windtunnel.job.job import Job

LEVEL = 0.8
"""Share of published runs inside the interval."""


def residuals(job: Job) -> tuple[float, float]:
    """Low and high end of measured over projected bytes, from published runs of the framework and kind of model.

    FSDP that stays gathered under a pipeline has residuals of its own. Where segments expand, the spread of the
    allocator is taken out of the high end again: independent spreads add by their squares.
    """
    traits, plan = job.software.traits, job.plan
    low, high = traits.dense_residual_low, traits.dense_residual_high
    if job.model.is_moe:
        low, high = traits.moe_residual_low, traits.moe_residual_high
    spread = job.constants.memory.reserved_spread
    if job.software.allocator != "default" and high > spread:
        high = 1 + sqrt((high - 1) ** 2 - (spread - 1) ** 2)
    if traits.unsharded_under_pipeline and plan.sharding.shards_parameters and plan.parallel.pp > 1:
        return low, max(high, job.constants.memory.unsharded_residual)
    return low, high
