"""Step time of many plans of one grid point: units priced once per kernel, sums and bounds as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache

import numpy as np

from windtunnel.cost.simulated import simulated_source
from windtunnel.job.job import Job
from windtunnel.job.plan import OVERLAPPING_SCHEDULES, Batch, Overlap, Strategy
from windtunnel.ops.chunk import LocalParameters, Unit
from windtunnel.projection.batch_memory import Stages
from windtunnel.projection.choices import Kernels
from windtunnel.projection.contents import Contents, Floats, Ints
from windtunnel.projection.options import Columns, Rows
from windtunnel.schedule.action import Order
from windtunnel.step.chunk import UnitCost, excess, stripped, unit_cost
from windtunnel.step.data_parallel import (
    DataParallel,
    Traffic,
    by_layer,
    offload_seconds,
    once_a_step,
    optimizer_seconds,
    reductions,
)
from windtunnel.step.host import HostSeconds, chunk_host
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
    ``[variant, stage]``; ``drain`` is None where weight gradients may come last: they hand nothing on."""

    fill: Floats
    each: Floats
    drain: Floats | None


@lru_cache(maxsize=2048)
def kernel_base(base: Job, kernels: Kernels) -> Job:
    """A ``stripped`` job that runs some kernels."""
    varied = kernels.apply(base)
    ep_comm = kernels.ep_comm or base.plan.overlap.ep_comm
    return replace(varied, plan=replace(varied.plan, overlap=replace(varied.plan.overlap, ep_comm=ep_comm, p2p=False)))


@lru_cache(maxsize=4096)
def priced_units(base: Job, units: tuple[Unit, ...]) -> tuple[UnitCost, ...]:
    """The units of a job with some kernels."""
    source = simulated_source(base)
    return tuple(unit_cost(source, base, unit) for unit in units)


@lru_cache(maxsize=4096)
def _unit_columns(base: Job, units: tuple[Unit, ...]) -> tuple[Floats, Floats]:
    """Seconds of F, B and W, and host seconds of forward and backward, of every unit."""
    priced = priced_units(base, units)
    phases = [(u.cost.forward.total, u.cost.backward_input.total, u.cost.backward_weight.total) for u in priced]
    return np.array(phases), np.array([(u.host.forward, u.host.backward) for u in priced])


def chunk_seconds(job: Job, rows: Rows, found: Contents, hop: float) -> ChunkSeconds:
    """Seconds of every chunk of every variant."""
    base = grid_base(job)
    tables = np.stack([_contents_seconds(kernel_base(base, kernels), found) for kernels in rows.kernels])
    forward, backward_input, backward_weight = np.moveaxis(
        tables[rows.kernel[:, None], :, found.of[rows.recompute]], 2, 0
    )
    wait = np.array([blocking(kernels.apply(job), hop) for kernels in rows.kernels])[rows.kernel, None]
    return ChunkSeconds(forward=forward + wait, backward_input=backward_input + wait, backward_weight=backward_weight)


def grid_base(job: Job) -> Job:
    """The job without its pipeline, as kernels are laid over it: an overlap remains where the schedule brings it."""
    base = stripped(job)
    ep_comm = job.plan.pipeline.schedule in OVERLAPPING_SCHEDULES
    return replace(base, plan=replace(base.plan, overlap=replace(base.plan.overlap, ep_comm=ep_comm)))


def _contents_seconds(base: Job, found: Contents) -> Floats:
    """F, B and W of every content, ``[phase, content]``, without waiting for transfers."""
    phases, launches = _unit_columns(base, found.units)
    host_of = {head: chunk_host(base, head=head) for head in (False, True)}
    ends = [host_of[chunk.head] for chunk in found.chunks]
    host = found.counts @ launches + np.array([(end.forward, end.backward) for end in ends])
    forward, backward_input, backward_weight = (found.counts @ phases).T
    seconds = forward + backward_input + backward_weight
    beyond = excess(HostSeconds(host[:, 0], host[:, 1]), seconds, base.constants.host.sharpness)
    return np.stack([forward + beyond.forward, backward_input + beyond.backward, backward_weight])


def stage_terms(seconds: ChunkSeconds, hop: float, order: Order) -> StageTerms:
    """What bounds every stage."""
    held = np.array(order.placement)
    first = held.min(axis=1)
    share = order.microbatches_per_chunk / order.num_microbatches
    each = share * (seconds.forward + seconds.backward)[:, held].sum(axis=2)
    drain = _before(seconds.backward)[:, first] + first * hop if backward_is_joint(order) else None
    return StageTerms(fill=_before(seconds.forward)[:, first] + first * hop, each=each, drain=drain)


def _before(seconds: Floats) -> Floats:
    """The sum over all earlier chunks."""
    return np.concatenate([np.zeros((len(seconds), 1)), np.cumsum(seconds, axis=1)[:, :-1]], axis=1)


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
    order: Order
    stages: Stages

    def of(self, columns: Columns) -> list[Floats]:
        """Seconds each kind of stage adds after its pipeline, ``[variant, choice]``."""
        groups = sharding_groups(_traffic_base(self.job), columns.groups)
        return [self._of_kind(kind, groups, columns) for kind in range(len(self.stages.ranks))]

    def _of_kind(self, kind: int, groups: ShardingGroups, columns: Columns) -> Floats:
        parameters, rates, group = self.stages.parameters[kind], self.job.constants, columns.group
        held = list(self.order.placement[self.stages.ranks[kind]])
        forward, backward = (
            each[:, held].sum(axis=1)[:, None] for each in (self.seconds.forward, self.seconds.backward)
        )
        pricer = DataParallel(self.job, simulated_source(self.job))
        repeated = np.array([reductions(self.job, strategy) for strategy, _ in columns.groups])[group]
        windows = pricer.windows(forward, backward, parameters, columns.grad_reduce, columns.param_gather, repeated)
        late = once_a_step(_spread(groups.traffic(parameters), group), windows, rates, pricer.link).total
        if self.job.plan.parallel.pp == 1 and groups.whole.any():
            overlapped = np.maximum(columns.grad_reduce, columns.param_gather).astype(np.intp)
            layered = self._by_layer(groups, backward, pricer.link)[overlapped, :, group].T
            late = np.where(groups.whole[group], layered, late)
        sharded = groups.sharded(parameters)[group]
        optimizer = optimizer_seconds(self.job, sharded, parameters.total, 1.0 - groups.whole[group])
        return np.asarray(late + optimizer + offload_seconds(self.job, sharded, columns.on_host))

    def _by_layer(self, groups: ShardingGroups, backward: Floats, link: float) -> Floats:
        """Additions of the only stage where every unit gathers and reduces on its own, without and with overlap,
        ``[overlapped, variant, group]``."""
        base, result = grid_base(self.job), []
        for row, kernel in enumerate(self.rows.kernel):
            priced = priced_units(kernel_base(base, self.rows.kernels[kernel]), self.found.units)
            counted = self.found.counted[self.found.of[self.rows.recompute[row], 0]]
            units = [
                (groups.traffic(u.parameters), u.cost.forward.total, u.cost.backward, n)
                for u, n in ((priced[self.found.units.index(unit)], n) for unit, n in counted)
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


def _spread(traffic: Traffic, group: Ints) -> Traffic:
    """The traffic of every choice."""
    return Traffic(**{item.name: getattr(traffic, item.name)[group] for item in fields(Traffic)})
