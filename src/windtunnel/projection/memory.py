"""Peak memory of every stage: structure, static state and device overhead put together."""

from __future__ import annotations

from windtunnel.job.job import Job
from windtunnel.memory.breakdown import MemoryBreakdown
from windtunnel.memory.device import overhead_terms, reserved_ratio
from windtunnel.memory.interval import residuals
from windtunnel.memory.states import byte_rates, shard_sizes, states
from windtunnel.memory.structure import Candidate, StageStructure, structures
from windtunnel.projection import compose
from windtunnel.projection.result import Memory, Verdict


def project_memory(job: Job) -> Memory:
    """Bytes of every stage at its peak moment, and the verdict for the worst. Raises LegalityError."""
    found = structures(job)
    stages = tuple(_stage(job, index, structure) for index, structure in enumerate(found))
    capacity = job.cluster.accelerator.hbm_capacity
    peak = max(stage.device for stage in stages)
    low, high = residuals(job)
    return Memory(
        verdict=verdict(peak, capacity, high),
        interval=(low * peak, high * peak),
        capacity=capacity,
        stages=stages,
        host=max(_host(job, structure) for structure in found),
        host_checkpoint=max(_saved(job, structure) for structure in found),
    )


ROUNDING = 1e-9
"""A full device is not an overfull one: sums of bytes carry rounding errors."""


def verdict(peak: float, capacity: float, high: float) -> Verdict:
    """fits when the high end of the interval (a factor) is within capacity, oom when the point exceeds it, else
    borderline."""
    room = capacity * (1 + ROUNDING)
    if peak > room:
        return "oom"
    return "fits" if peak * high <= room else "borderline"


def per_stage_parameters(found: tuple[StageStructure, ...]) -> tuple[int, ...]:
    return tuple(round(structure.parameters.total) for structure in found)


def _stage(job: Job, index: int, structure: StageStructure) -> MemoryBreakdown:
    return max(
        (_breakdown(job, index, structure, candidate) for candidate in structure.candidates),
        key=lambda breakdown: breakdown.allocated,
    )


def _breakdown(job: Job, index: int, structure: StageStructure, candidate: Candidate) -> MemoryBreakdown:
    dense_shard, expert_shard = shard_sizes(job)
    parameters = structure.parameters
    rates = byte_rates(job)
    held = states(parameters.dense, parameters.expert, dense_shard, expert_shard, rates, structure.largest_tensor)
    passing = candidate.passing + (held.stepping if candidate.moment == "optimizer" else 0.0)
    alive = candidate.activations + candidate.dispatcher + candidate.logits + passing
    allocated = compose.allocated(held, structure.resident, alive)
    outside = compose.overhead(allocated, *overhead_terms(job))
    room = compose.room(job.cluster.accelerator.hbm_capacity, residuals(job)[1], outside)
    return MemoryBreakdown(
        stage=index,
        rank=_first_rank(job, index),
        moment=candidate.moment,
        in_flight=candidate.in_flight,
        weights=held.weights,
        gradients=held.gradients,
        master=held.master,
        moments=held.moments,
        activations=candidate.activations,
        logits=candidate.logits,
        buffers=held.gathered + structure.resident + passing,
        dispatcher=candidate.dispatcher,
        reserved=compose.reserved(allocated, structure.cached, reserved_ratio(job), room),
        overhead=outside,
    )


def _first_rank(job: Job, stage: int) -> int:
    """The lowest global rank of a stage, for the job's group order."""
    parallel = job.plan.parallel
    inner = 1
    sizes = {"tp": parallel.tp, "cp": parallel.cp, "dp": parallel.dp, "pp": parallel.pp}
    for axis in parallel.order:
        if axis == "pp":
            break
        inner *= sizes.get(axis, 1)
    return stage * inner


def _saved(job: Job, structure: StageStructure) -> float:
    """Host bytes of one rank while a checkpoint is staged whole: its share of optimizer state and weights."""
    rates, parameters = byte_rates(job), structure.parameters
    dense_shard, expert_shard = shard_sizes(job)
    sharded = parameters.dense / dense_shard + parameters.expert / expert_shard
    state = sharded if rates.optimizer_sharded else parameters.total
    return (rates.master + rates.moments) * state + rates.weight * sharded


def _host(job: Job, structure: StageStructure) -> float:
    """Host bytes of one rank: offloaded activations and optimizer state."""
    rates = byte_rates(job)
    dense_shard, expert_shard = shard_sizes(job)
    if not rates.optimizer_on_host:
        return structure.offloaded
    parameters = structure.parameters
    sharded = parameters.dense / dense_shard + parameters.expert / expert_shard
    count = sharded if rates.optimizer_sharded else parameters.total
    return structure.offloaded + (rates.master + rates.moments) * count
