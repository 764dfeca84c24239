"""Peak memory of many plans of one grid point: kept bytes once per content and kernel, sums as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache, reduce
from typing import Any

import numpy as np

from windtunnel.elementwise import Number, maximum
from windtunnel.job.job import Job
from windtunnel.job.plan import Chunk, Dispatcher, Parallel, Sharding, Strategy
from windtunnel.memory.device import overhead_terms, reserved_ratio
from windtunnel.memory.interval import residuals
from windtunnel.memory.kept import (
    KeptChunk,
    KeptUnit,
    chunk_logits,
    kept_unit,
)
from windtunnel.memory.states import ByteRates, byte_rates, shards, states
from windtunnel.memory.structure import Holding, candidates_of, received_ahead, stage_holding, stripped
from windtunnel.ops.chunk import LocalParameters, Unit
from windtunnel.projection import compose
from windtunnel.projection.contents import Contents, Floats, Ints
from windtunnel.projection.options import Columns, Rows, State
from windtunnel.schedule.action import Order
from windtunnel.schedule.in_flight import peaks


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stages:
    """Stages of a grid point by kind: those that hold the same parameters count as one."""

    kind: Ints
    parameters: tuple[LocalParameters, ...]
    ranks: tuple[int, ...]
    """One stage of each kind."""


@dataclass(frozen=True, slots=True, eq=False)
class Alive:
    """Rows of micro-batches in flight: the stage of each row, its chunks and how many each has alive."""

    rank: Ints
    chunks: Ints
    counts: Floats


@lru_cache(maxsize=256)
def alive_rows(order: Order) -> Alive:
    """The moments of every stage that could be its peak."""
    rows = [(rank, counts) for rank, vectors in enumerate(peaks(order)) for counts in vectors]
    return Alive(
        np.array([rank for rank, _ in rows], dtype=np.intp),
        np.array([order.placement[rank] for rank, _ in rows], dtype=np.intp),
        np.array([counts for _, counts in rows], dtype=np.float64),
    )


@dataclass(frozen=True, slots=True, eq=False)
class BatchMemory:
    """What the peaks of a grid point's plans are made of."""

    job: Job
    found: Contents
    stages: Stages
    order: Order

    def peak_device(self, rows: Rows, columns: Columns) -> Floats:
        """Device bytes of the worst stage, ``[variant, choice]``; variants and choices that hold the same are one."""
        kept = dict.fromkeys((r, rows.kernels[k].kept) for r, k in zip(rows.recompute, rows.kernel, strict=True))
        number = {key: index for index, key in enumerate(kept)}
        row = [number[r, rows.kernels[k].kept] for r, k in zip(rows.recompute, rows.kernel, strict=True)]
        peak = np.empty((len(kept), len(columns.states)))
        for whole in (False, True):
            mine = [i for i, state in enumerate(columns.states) if _shards_parameters(state[0]) is whole]
            if mine:
                states_of = [columns.states[i] for i in mine]
                peak[:, mine] = self._worst(*self._passing(tuple(kept), states_of[0]), states_of)
        return peak[row][:, columns.state]

    def most_that_fits(self, columns: Columns) -> Floats:
        """Peak device bytes up to which the verdict is ``fits``, by choice."""
        capacity = self.job.cluster.accelerator.hbm_capacity
        high = {
            s: residuals(_sharded(self.job, (s, 1, "none")))[1] for s in dict.fromkeys(s for s, _, _ in columns.states)
        }
        return np.array([capacity / high[s] for s, _, _ in columns.states])[columns.state]

    def _passing(self, kept: Sequence[tuple[int, tuple[Dispatcher, float]]], state: State) -> tuple[Floats, Floats]:
        """The most that is alive beside the state, and what the loss leaves cached beyond it, ``[(recompute, kernel),
        kind of stage]``."""
        alive, heads = alive_rows(self.order), np.array([stage.head for stage in self._holdings(state)])
        tables = {kernel: self._kept(*kernel) for kernel in dict.fromkeys(kernel for _, kernel in kept)}
        numbers = list(tables)
        stacked = {item.name: np.stack([table[item.name] for table in tables.values()]) for item in fields(KeptChunk)}
        of = self.found.of[[r for r, _ in kept]]
        which = np.array([numbers.index(kernel) for _, kernel in kept])[:, None]
        own = []
        for j in range(alive.chunks.shape[1]):
            content = of[:, alive.chunks[:, j]]
            own.append(KeptChunk(**{name: values[which, content] for name, values in stacked.items()}))
        counts: list[Number] = [alive.counts[:, j] for j in range(alive.counts.shape[1])]
        kind = self.stages.kind[alive.rank]
        moments = candidates_of(own, counts, self.order.virtual_stages, heads[kind])
        freed = reduce(maximum, (chunk.loss_cached for chunk in own))
        loss = next(moment for moment in moments if moment.moment == "loss")
        most = self._by_kind(reduce(maximum, (moment.alive for moment in moments)), kind)
        return most, np.maximum(self._by_kind(loss.alive + freed, kind) - most, 0.0)

    def _by_kind(self, rows: Floats, kind: Ints) -> Floats:
        """The largest of the rows of each kind of stage."""
        return np.stack([rows[:, kind == each].max(axis=1) for each in range(len(self.stages.ranks))], axis=1)

    def _kept(self, dispatcher: Dispatcher, offload: float) -> dict[str, Floats]:
        """``KeptChunk`` of every content, field by field."""
        base = kept_base(self.job, dispatcher, offload)
        columns = _kept_columns(base, self.found.units)
        present = self.found.counts > 0
        kept = {name: self.found.counts @ columns[name] for name in ("activations", "dispatcher", "offloaded")}
        kept |= {name: np.max(present * columns[name], axis=1) for name in ("backward", "recompute")}
        logits = np.array([chunk_logits(base, chunk) for chunk in self.found.chunks])
        return {**kept, **dict(zip(("logits", "loss_peak", "loss_cached"), logits.T, strict=True))}

    def _holdings(self, state: State) -> list[Holding]:
        """What each kind of stage holds whatever is in flight."""
        plan = self.job.plan
        base = kept_base(_sharded(self.job, state), plan.moe.dispatcher, 0.0)
        placed = [self.order.placement[rank] for rank in self.stages.ranks]
        each = [_holding(base, tuple(plan.pipeline.layout[index] for index in held)) for held in placed]
        ahead = [received_ahead(self.job, held) for held in placed]
        return [one._replace(resident=one.resident + more) for one, more in zip(each, ahead, strict=True)]

    def _worst(self, passing: Floats, cached: Floats, states_of: Sequence[State]) -> Floats:
        """Device bytes of the worst kind of stage, ``[(recompute, kernel), state]``."""
        job = _sharded(self.job, states_of[0])
        rates = _rates(self.job, states_of)
        parallel = job.plan.parallel
        replicas, expert_replicas = parallel.dp * parallel.cp, max(1, parallel.expert_dp)
        sizes: Any = np.array(
            [shards(replicas, expert_replicas, Sharding(strategy=s, shard_size=n)) for s, n, _ in states_of],
            dtype=np.float64,
        ).T
        room_of, ratio, outside_of = job.cluster.accelerator.hbm_capacity, reserved_ratio(job), overhead_terms(job)
        worst = np.zeros((len(passing), len(states_of)))
        for kind, own in enumerate(self._holdings(states_of[0])):
            parameters = self.stages.parameters[kind]
            held: Any = states(parameters.dense, parameters.expert, sizes[0], sizes[1], rates, own.largest_tensor)
            moving = np.maximum(np.maximum(passing[:, kind, None], own.reduction), held.stepping)
            allocated = compose.allocated(held, own.resident, moving)
            outside = compose.overhead(allocated, *outside_of)
            worst = np.maximum(
                worst, compose.reserved(allocated, cached[:, kind, None], ratio, room_of - outside) + outside
            )
        return worst


@lru_cache(maxsize=4096)
def _holding(job: Job, chunks: tuple[Chunk, ...]) -> Holding:
    return stage_holding(job, chunks)


def kept_base(job: Job, dispatcher: Dispatcher, offload: float) -> Job:
    """The job as far as one unit's kept bytes go: without pipeline, batch, recompute and group order, with these
    kernels."""
    base = stripped(job)
    plan = base.plan
    return replace(
        base,
        plan=replace(
            plan,
            parallel=replace(plan.parallel, order=Parallel().order),
            pipeline=replace(plan.pipeline, schedule="1f1b", virtual_stages=1, layout=(), microbatch_group_size=1),
            batch=replace(plan.batch, global_batch_size=plan.batch.micro_batch_size),
            recompute=(frozenset(),) * len(plan.recompute),
            moe=replace(plan.moe, dispatcher=dispatcher),
            offload=replace(plan.offload, activations=offload),
        ),
    )


@lru_cache(maxsize=4096)
def _kept_columns(base: Job, units: tuple[Unit, ...]) -> dict[str, Floats]:
    """``KeptUnit`` of every unit, field by field."""
    each = [_kept_unit(base, unit) for unit in units]
    return {item.name: np.array([getattr(unit, item.name) for unit in each]) for item in fields(KeptUnit)}


@lru_cache(maxsize=8192)
def _kept_unit(base: Job, unit: Unit) -> KeptUnit:
    return kept_unit(base, unit)


def _shards_parameters(strategy: Strategy) -> bool:
    return Sharding(strategy=strategy, shard_size=1).shards_parameters


def _sharded(job: Job, state: State) -> Job:
    """The job with some state held so."""
    strategy, size, optimizer = state
    plan = job.plan
    sharding = replace(plan.sharding, strategy=strategy, shard_size=size)
    return replace(job, plan=replace(plan, sharding=sharding, offload=replace(plan.offload, optimizer=optimizer)))


def _rates(job: Job, states_of: Sequence[State]) -> ByteRates:
    """The byte rates of every column, as one ``ByteRates`` of arrays; a shard size changes none."""
    known = {
        (s, on): byte_rates(_sharded(job, (s, 1, on))) for s, on in dict.fromkeys((s, on) for s, _, on in states_of)
    }
    each = [known[s, on] for s, _, on in states_of]
    columns: dict[str, Any] = {item.name: np.array([getattr(r, item.name) for r in each]) for item in fields(ByteRates)}
    return ByteRates(**columns)
