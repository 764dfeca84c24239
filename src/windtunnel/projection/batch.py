"""Many jobs at once: structure scalar and cached, sums and bounds on numpy arrays through ``compose``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windtunnel.cost.simulated import simulated_source
from windtunnel.job.job import Job
from windtunnel.memory.device import overhead_terms, reserved_ratio
from windtunnel.memory.states import ByteRates, byte_rates, shard_sizes, states
from windtunnel.memory.structure import Candidate, structures
from windtunnel.projection import compose
from windtunnel.schedule.action import Order
from windtunnel.schedule.job_order import job_order
from windtunnel.step.chunk import ChunkCost
from windtunnel.step.step import StepCosts, step_costs

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One entry a job: peak bytes of its worst stage, a lower bound and an estimate of its step time in seconds."""

    peak_allocated: Floats
    peak_device: Floats
    step_time_bound: Floats
    step_time_estimate: Floats


def batch(jobs: Sequence[Job]) -> Batch:
    """Memory, bound and estimate of legal jobs. Memory equals ``project``; the bound never exceeds its step time.

    Raises LegalityError where a schedule does not apply.
    """
    allocated, device = _memory(jobs)
    bound, estimate = _time(jobs)
    return Batch(peak_allocated=allocated, peak_device=device, step_time_bound=bound, step_time_estimate=estimate)


def _memory(jobs: Sequence[Job]) -> tuple[Floats, Floats]:
    """One row per job, stage and candidate moment; the worst row of a job is its peak."""
    rows, owners, rates = [], [], []
    for index, job in enumerate(jobs):
        rate, shards = byte_rates(job), shard_sizes(job)
        terms = (
            reserved_ratio(job),
            *overhead_terms(job),
            job.cluster.accelerator.hbm_capacity,
        )
        for stage in structures(job):
            for candidate in stage.candidates:
                held_by = (stage.parameters.dense, stage.parameters.expert, *shards)
                sizes = (*held_by, stage.resident, stage.largest_tensor, stage.cached)
                rows.append((*sizes, _alive(candidate), float(candidate.moment == "optimizer"), *terms))
                owners.append(index)
                rates.append(rate)
    table = np.array(rows, dtype=np.float64).T
    dense, expert, dense_shard, expert_shard, resident, largest, cached, alive, optimizer, *rest = table
    ratio, share, fixed, capacity = rest
    held: Any = states(dense, expert, dense_shard, expert_shard, _columns(rates), largest)
    passing = alive + optimizer * held.stepping
    allocated = compose.allocated(held, resident, passing)
    outside = compose.overhead(allocated, share, fixed)
    device = compose.reserved(allocated, cached, ratio, capacity - outside) + outside
    return _worst(allocated, owners, len(jobs)), _worst(device, owners, len(jobs))


def _alive(candidate: Candidate) -> float:
    return candidate.activations + candidate.dispatcher + candidate.logits + candidate.passing


def _columns(rates: Sequence[ByteRates]) -> ByteRates:
    """The byte rates of every row, as one ``ByteRates`` of arrays."""
    columns: dict[str, Any] = {
        item.name: np.array([getattr(rate, item.name) for rate in rates], dtype=np.float64)
        for item in fields(ByteRates)
    }
    return ByteRates(**columns)


def _time(jobs: Sequence[Job]) -> tuple[Floats, Floats]:
    """One row per job and stage for the bound; the estimate takes the slowest stage and the sum over stages."""
    bounds, owners, estimates = [], [], []
    for index, job in enumerate(jobs):
        order = job_order(job)
        costs = step_costs(job, simulated_source(job), order)
        stages = [_stage_seconds(costs, order, rank) for rank in range(order.num_stages)]
        bounds += [(order.num_microbatches, *stage, costs.jitter) for stage in stages]
        owners += [index] * len(stages)
        estimates.append(_estimate_row(costs, order, stages))
    bound = compose.bound(*np.array(bounds, dtype=np.float64).T)
    m, slowest, total, p, v, transfer, addition, jitter = np.array(estimates, dtype=np.float64).T
    pipeline = compose.estimate(m, slowest, total, p, v, transfer)
    return _worst(bound, owners, len(jobs)), np.asarray(compose.finish(pipeline, addition, jitter))


def _stage_seconds(costs: StepCosts, order: Order, rank: int) -> tuple[float, float, float]:
    """(fill, seconds of a micro-batch, what follows the last one) of one stage."""
    fill, each, drain = stage_terms(costs.chunks, costs.transfer, order, rank)
    after = costs.additions[rank].total
    if drain is not None:
        after = max(after, drain + costs.additions[first_stage(order)].total)
    return fill, each, after


def stage_terms(
    chunks: Sequence[ChunkCost], transfer: float, order: Order, rank: int
) -> tuple[float, float, float | None]:
    """Seconds before a stage can start, of one micro-batch on it, and from its last backward to the first stage's.

    The last is None where weight gradients may come last: they hand nothing on.
    """
    held = order.placement[rank]
    share = order.microbatches_per_chunk / order.num_microbatches
    each = share * sum(chunks[index].forward.total + chunks[index].backward for index in held)
    before, hops = range(min(held)), min(held) * transfer
    fill = sum(chunks[index].forward.total for index in before) + hops
    if not backward_is_joint(order):
        return fill, each, None
    return fill, each, sum(chunks[index].backward for index in before) + hops


@lru_cache(maxsize=1024)
def backward_is_joint(order: Order) -> bool:
    """Whether every backward of an order makes both gradients at once."""
    return all(action.kind in ("F", "BW") for row in order.actions for action in row)


def first_stage(order: Order) -> int:
    """The stage that holds the first chunk of the model."""
    return next(stage for stage, chunks in enumerate(order.placement) if 0 in chunks)


def _estimate_row(costs: StepCosts, order: Order, stages: Sequence[tuple[float, float, float]]) -> tuple[float, ...]:
    seconds = [stage[1] for stage in stages]
    return (
        order.num_microbatches,
        max(seconds),
        sum(seconds),
        order.num_stages,
        order.virtual_stages,
        costs.transfer,
        max(added.total for added in costs.additions),
        costs.jitter,
    )


def _worst(values: Floats, owners: Sequence[int], jobs: int) -> Floats:
    worst = np.full(jobs, -np.inf)
    np.maximum.at(worst, np.asarray(owners), values)
    return worst
