"""From allocated bytes to what the driver shows: the allocator's reserve, context, communicators."""

from __future__ import annotations

from windtunnel.job.job import Job


def reserved_ratio(job: Job) -> float:
    """Allocator reserved over allocated; a compiled XLA program allocates exactly what it uses, and expandable
    segments leave little behind."""
    if job.cluster.accelerator.is_tpu:
        return 1.0
    ratio = job.software.traits.reserved_ratio
    return min(ratio, job.constants.memory.expandable_ratio) if job.software.allocator != "default" else ratio


def overhead_terms(job: Job) -> tuple[float, float]:
    """Bytes outside the allocator as (share of the allocated bytes, fixed bytes).

    AMD: published device readings exceed the allocator by a share and a constant that also absorb RCCL and dispatcher
    buffers; NVIDIA: a context, and one communicator per group of more than one rank.
    """
    memory, accelerator = job.constants.memory, job.cluster.accelerator
    if accelerator.is_tpu:
        return 0.0, memory.tpu_overhead
    if accelerator.vendor == "amd":
        return memory.rocm_ratio - reserved_ratio(job), memory.rocm_overhead
    return 0.0, memory.context + communicators(job) * memory.communicator


def communicators(job: Job) -> int:
    """Process groups of more than one rank: of every degree, and where the framework has them of all ranks, of a model
    replica, of data and context parallelism together, and of the replicas of experts."""
    p = job.plan.parallel
    sizes = [p.tp, p.cp, p.pp, p.dp, p.ep, p.etp]
    if job.software.traits.product_groups:
        sizes += [p.world, p.tp * p.pp, p.dp * p.cp, p.expert_dp if job.model.is_moe else 1]
    return sum(size > 1 for size in sizes)
