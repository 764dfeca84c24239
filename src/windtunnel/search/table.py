"""All inner choices of one outer point at once: memory, a lower bound, an estimate and exact step times, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from windtunnel.cost.simulated import simulated_source
from windtunnel.job.job import Job
from windtunnel.memory.device import overhead_terms, reserved_ratio
from windtunnel.memory.states import byte_rates, shard_sizes, states
from windtunnel.memory.structure import StageStructure, structures
from windtunnel.ops.chunk import LocalParameters
from windtunnel.projection import compose
from windtunnel.projection.batch import first_stage, stage_terms
from windtunnel.schedule.action import Order
from windtunnel.schedule.job_order import job_order
from windtunnel.search.space import Choice
from windtunnel.step.chunk import ChunkCost
from windtunnel.step.data_parallel import (
    DataParallel,
    Traffic,
    by_layer,
    offload_seconds,
    once_a_step,
    optimizer_seconds,
    reductions,
)
from windtunnel.step.step import chunks_with_hops, jitter
from windtunnel.step.timeline import ChunkDurations, makespan_only

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One entry a choice, in the order given."""

    job: Job
    choices: tuple[Choice, ...]
    peak_device: Floats
    step_time_bound: Floats
    step_time_estimate: Floats


def score(job: Job, options: Sequence[Choice]) -> Table:
    """Memory as ``project`` gives it, a bound that never exceeds its step time, and an estimate, for every choice."""
    order = job_order(job)
    chunks, hop = chunks_with_hops(job, simulated_source(job))
    additions = _additions(job, order, chunks, options)
    terms = [stage_terms(chunks, hop, order, rank) for rank in range(order.num_stages)]
    first, m, factor = additions[first_stage(order)], order.num_microbatches, jitter(job)
    bounds = [
        compose.bound(m, fill, each, own if drain is None else np.maximum(own, drain + first), factor)
        for (fill, each, drain), own in zip(terms, additions, strict=True)
    ]
    each_stage = [each for _, each, _ in terms]
    pipeline = compose.estimate(m, max(each_stage), sum(each_stage), order.num_stages, order.virtual_stages, hop)
    return Table(
        job=job,
        choices=tuple(options),
        peak_device=_memory(job, options),
        step_time_bound=np.max(bounds, axis=0),
        step_time_estimate=compose.finish(pipeline, np.max(additions, axis=0), factor),
    )


def exact(table: Table) -> Floats:
    """The step time ``project`` gives, for every choice: the order is executed once."""
    job, order = table.job, job_order(table.job)
    chunks, hop = chunks_with_hops(job, simulated_source(job))
    durations = [ChunkDurations(c.forward.total, c.backward_input.total, c.backward_weight.total) for c in chunks]
    ends = makespan_only(order, durations, hop)
    additions = _additions(job, order, chunks, table.choices)
    stages = [compose.finish(end, own, jitter(job)) for end, own in zip(ends, additions, strict=True)]
    return np.asarray(np.max(stages, axis=0))


def _additions(job: Job, order: Order, chunks: Sequence[ChunkCost], options: Sequence[Choice]) -> list[Floats]:
    """Seconds each stage adds after its pipeline, for every choice; equal stages are computed once."""
    known: dict[tuple[int, ...], Floats] = {}
    found = []
    groups = _by_sharding(job, options)
    for held in order.placement:
        key = tuple(id(chunks[index]) for index in held)
        if key not in known:
            known[key] = _stage_additions(job, tuple(chunks[index] for index in held), options, groups)
        found.append(known[key])
    return found


@dataclass(frozen=True, slots=True)
class _Group:
    """Choices that shard alike: their positions, a job that shards so, and its pricer."""

    rows: NDArray[np.intp]
    job: Job
    pricer: DataParallel


def _by_sharding(job: Job, options: Sequence[Choice]) -> list[_Group]:
    rows: dict[tuple[str, int], list[int]] = {}
    for index, option in enumerate(options):
        rows.setdefault((option.strategy, option.shard_size), []).append(index)
    groups = []
    for found in rows.values():
        variant = options[found[0]].apply(job)
        groups.append(_Group(np.array(found), variant, DataParallel(variant, simulated_source(variant))))
    return groups


def _stage_additions(
    job: Job, stage: tuple[ChunkCost, ...], options: Sequence[Choice], groups: Sequence[_Group]
) -> Floats:
    parameters = LocalParameters(0.0, 0.0)
    for chunk in stage:
        parameters += chunk.parameters
    reduces = np.array([option.grad_reduce for option in options], dtype=np.float64)
    gathers = np.array([option.param_gather for option in options], dtype=np.float64)
    hosts = np.array([option.optimizer_offload != "none" for option in options], dtype=np.float64)
    total = np.empty(len(options))
    for group in groups:
        rows, sharding = group.rows, group.job.plan.sharding
        if sharding.shards_parameters and job.plan.parallel.pp == 1:
            overlapped = np.maximum(reduces, gathers)[rows]
            late = by_layer(group.job, _units(group.pricer, stage), _backward(stage), group.pricer.link, overlapped)
        else:
            windows = group.pricer.windows(stage, parameters, reduces[rows], gathers[rows], reductions(group.job))
            traffic = group.pricer.traffic(parameters)
            late = once_a_step(traffic, windows, job.constants.data_parallel, group.pricer.link)
        sharded = group.pricer.sharded(parameters)
        optimizer = optimizer_seconds(job, sharded, parameters.total, float(not sharding.shards_parameters))
        total[rows] = late.total + optimizer + offload_seconds(job, sharded, hosts[rows])
    return total


def _units(pricer: DataParallel, stage: tuple[ChunkCost, ...]) -> list[tuple[Traffic, float, float, int]]:
    counted = [unit for chunk in stage for unit in chunk.units]
    return [(pricer.traffic(u.parameters), u.cost.forward.total, u.cost.backward, u.occurrences) for u in counted]


def _backward(stage: tuple[ChunkCost, ...]) -> float:
    return sum(chunk.backward for chunk in stage)


def _memory(job: Job, options: Sequence[Choice]) -> Floats:
    """Peak device bytes of the worst stage. Choices that keep the same state share one row."""
    rows: dict[tuple[str, int, str], list[int]] = {}
    for index, option in enumerate(options):
        rows.setdefault((option.strategy, option.shard_size, option.optimizer_offload), []).append(index)
    peak = np.empty(len(options))
    for found in rows.values():
        peak[found] = _peak(options[found[0]].apply(job))
    return peak


def _peak(job: Job) -> float:
    """The worst stage's device bytes: stages with the same parameters differ only in what is alive."""
    rates, shards = byte_rates(job), shard_sizes(job)
    room_of = job.cluster.accelerator.hbm_capacity
    worst = 0.0
    for (dense, expert, resident), alive in _stages(structures(job)).items():
        held = states(dense, expert, *shards, rates)
        moving = max(alive, held.weights) if job.software.traits.foreach_optimizer else alive
        allocated = compose.allocated(held, resident, moving)
        outside = compose.overhead(allocated, *overhead_terms(job))
        worst = max(worst, compose.reserved(allocated, reserved_ratio(job), room_of - outside) + outside)
    return worst


def _stages(found: Sequence[StageStructure]) -> dict[tuple[float, float, float], float]:
    """The most that is alive beside the state, by (dense parameters, expert parameters, resident bytes)."""
    most: dict[tuple[float, float, float], float] = {}
    for stage in found:
        key = (stage.parameters.dense, stage.parameters.expert, stage.resident)
        alive = max(c.activations + c.dispatcher + c.logits + c.passing for c in stage.candidates)
        most[key] = max(most.get(key, 0.0), alive)
    return most
