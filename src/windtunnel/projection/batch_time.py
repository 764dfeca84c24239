"""Step time of many plans of one grid point: units priced once per kernel, sums and bounds as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

import numpy as np

from windtunnel.cost.simulated import simulated_source
from windtunnel.job.job import Job
from windtunnel.job.plan import Batch, Overlap, Strategy
from windtunnel.ops.chunk import LocalParameters
from windtunnel.projection.contents import Contents, Floats, Ints
from windtunnel.projection.options import Columns, Rows
from windtunnel.projection.shape import Shape
from windtunnel.projection.stages import Stages
from windtunnel.schedule.action import Order
from windtunnel.step.chunk import stripped
from windtunnel.step.data_parallel import (
    DataParallel,
    Traffic,
    by_layer,
    offload_seconds,
    once_a_step,
    optimizer_seconds,
    reductions,
)
from windtunnel.step.step import blocking, transfer


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChunkSeconds:
    """Seconds of F, B and W, ``[variant, chunk]``."""

    forward: Floats
    backward_input: Floats
    backward_weight: Floats

    @property
    def backward(self) -> Floats:
        return self.backward_input + self.backward_weight


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageTerms:
    """Seconds before a stage can start, of one micro-batch on it, and from its last backward to the first stage's,
    ``[variant, kind]``, of the last stage of each kind; ``drain`` is None where weight gradients may come last: they
    hand nothing on."""

    fill: Floats
    each: Floats
    drain: Floats | None


def chunk_seconds(job: Job, rows: Rows, found: Contents, shape: Shape, hop: float) -> ChunkSeconds:
    """Seconds of every chunk of every variant."""
    used = sorted(set(rows.kernel.tolist()))
    kernels, kernel = [rows.kernels[number] for number in used], np.searchsorted(used, rows.kernel)[:, None]
    tables = np.stack([shape.seconds(found, each) for each in kernels])
    values = tables[kernel, :, found.of[rows.recompute]]
    wait = np.array([blocking(job, hop, p2p=each.p2p) for each in kernels])[kernel]
    return ChunkSeconds(
        forward=values[:, :, 0] + wait, backward_input=values[:, :, 1] + wait, backward_weight=values[:, :, 2]
    )


def stage_terms(seconds: ChunkSeconds, hop: float, order: Order, stages: Stages) -> StageTerms:
    """What bounds every kind of stage: the later its first chunk comes, the more."""
    held = np.array(stages.held)
    first = held.min(axis=1)
    share = order.microbatches_per_chunk / order.num_microbatches
    backward = seconds.backward
    each = share * (seconds.forward + backward)[:, held].sum(axis=2)
    drain = _before(backward, first) + first * hop if backward_is_joint(order) else None
    return StageTerms(fill=_before(seconds.forward, first) + first * hop, each=each, drain=drain)


def _before(seconds: Floats, chunks: Ints) -> Floats:
    """The sum over all chunks before these."""
    sums = np.zeros((len(seconds), seconds.shape[1] + 1))
    np.cumsum(seconds, axis=1, out=sums[:, 1:])
    return sums[:, chunks]


@lru_cache(maxsize=1024)
def backward_is_joint(order: Order) -> bool:
    """Whether every backward of an order makes both gradients at once."""
    return all(action.kind in ("F", "BW") for row in order.actions for action in row)


def hop_seconds(job: Job) -> float:
    return transfer(job, simulated_source(job))


@dataclass(frozen=True, slots=True, eq=False)
class BatchAdditions:
    """What the stages of a grid point's plans add to the pipeline is made of."""

    job: Job
    rows: Rows
    seconds: ChunkSeconds
    found: Contents
    shape: Shape
    stages: Stages
    parameters: Sequence[LocalParameters]

    def of(self, columns: Columns) -> Floats:
        """Seconds each kind of stage adds after its pipeline, ``[kind, variant, choice]``."""
        groups, lone = sharding_groups(_traffic_base(self.job), columns.groups), columns.lone
        held = np.array(self.stages.held)
        forward, backward = (
            each[:, held].sum(axis=2).T[:, :, None] for each in (self.seconds.forward, self.seconds.backward)
        )
        total: Any = np.array([own.total for own in self.parameters])[:, None, None]
        pricer = DataParallel(self.job, simulated_source(self.job))
        repeated = np.array([reductions(self.job, strategy) for strategy, _ in columns.groups])
        group, reduce, gather = columns.group[lone], columns.grad_reduce[lone], columns.param_gather[lone]
        windows = pricer.windows(forward, backward, total, reduce, gather, repeated[group])
        traffic = _stacked([groups.traffic(own) for own in self.parameters], group)
        late = once_a_step(traffic, windows, self.job.constants, pricer.link).total
        if self.job.plan.parallel.pp == 1 and groups.whole.any():
            overlapped = np.maximum(reduce, gather).astype(np.intp)
            layered = self._by_layer(groups, backward[0], pricer.link)[overlapped, :, group].T
            late = np.where(groups.whole[group], layered, late)
        sharded = np.stack([groups.sharded(own) for own in self.parameters])[:, None, columns.group]
        optimizer = optimizer_seconds(self.job, sharded, total, 1.0 - groups.whole[columns.group])
        return np.asarray(
            late[:, :, columns.traffic] + (optimizer + offload_seconds(self.job, sharded, columns.on_host))
        )

    def _by_layer(self, groups: ShardingGroups, backward: Floats, link: float) -> Floats:
        """Additions of the only stage where every unit gathers and reduces on its own, without and with overlap,
        ``[overlapped, variant, group]``."""
        result = []
        for row, kernel in enumerate(self.rows.kernel):
            priced = dict(zip(self.found.units, self.shape.costs(self.found, self.rows.kernels[kernel]), strict=True))
            counted = self.found.counted[self.found.of[self.rows.recompute[row], 0]]
            units = [
                (groups.traffic(u.parameters), u.cost.forward.total, u.cost.backward, n)
                for u, n in ((priced[unit], n) for unit, n in counted)
            ]
            last = float(backward[row, 0])
            result.append([by_layer(self.job, units, last, link, overlapped).total for overlapped in (0.0, 1.0)])
        return np.moveaxis(np.array(result), 1, 0)


class ShardingGroups:
    """Data-parallel traffic of several ways to shard, one entry a way; each stage's parameters are priced once."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._pricers = [DataParallel(job, simulated_source(job)) for job in jobs]
        self._traffic: dict[LocalParameters, Traffic] = {}
        self.whole = np.array([job.plan.sharding.shards_parameters for job in jobs])

    def traffic(self, parameters: LocalParameters) -> Traffic:
        if parameters not in self._traffic:
            each = [pricer.traffic(parameters) for pricer in self._pricers]
            columns = {item.name: np.array([getattr(one, item.name) for one in each]) for item in fields(Traffic)}
            self._traffic[parameters] = Traffic(**columns)
        return self._traffic[parameters]

    def sharded(self, parameters: LocalParameters) -> Floats:
        """Parameters whose optimizer state a rank holds."""
        return np.array([pricer.sharded(parameters) for pricer in self._pricers])


@lru_cache(maxsize=512)
def sharding_groups(base: Job, groups: tuple[tuple[Strategy, int], ...]) -> ShardingGroups:
    plan = base.plan
    return ShardingGroups(
        [
            replace(base, plan=replace(plan, sharding=replace(plan.sharding, strategy=strategy, shard_size=size)))
            for strategy, size in groups
        ]
    )


def _traffic_base(job: Job) -> Job:
    """The job without what data-parallel traffic does not depend on."""
    bare = stripped(job)
    plan = replace(
        bare.plan,
        parallel=job.plan.parallel,
        sharding=replace(job.plan.sharding, strategy="ddp", shard_size=1),
        overlap=Overlap(),
        batch=Batch(micro_batch_size=1, global_batch_size=1, sequence_length=1),
    )
    return replace(bare, cluster=job.cluster, plan=plan)


def _stacked(traffic: Sequence[Traffic], group: Ints) -> Traffic:
    """The traffic of every choice, ``[kind of stage, 1, choice]``."""
    names = (item.name for item in fields(Traffic))
    return Traffic(**{name: np.stack([getattr(one, name)[group] for one in traffic])[:, None] for name in names})
