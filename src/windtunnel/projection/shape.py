"""What plans of one shape share: seconds, bytes and parameters of a unit depend on degrees and micro-batch, not on the
pipeline around it; each is found once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from windtunnel.cost.simulated import simulated_source
from windtunnel.job.cluster import Cluster
from windtunnel.job.constants import Constants
from windtunnel.job.job import Job
from windtunnel.job.model import ModelSpec
from windtunnel.job.plan import (
    OVERLAPPING_SCHEDULES,
    Batch,
    Dispatcher,
    Overlap,
    Parallel,
    Pipeline,
    Plan,
    Sharding,
    Strategy,
)
from windtunnel.job.software import Software
from windtunnel.memory.interval import residuals
from windtunnel.memory.kept import KeptChunk, KeptUnit, chunk_logits, kept_unit
from windtunnel.memory.states import ByteRates, byte_rates
from windtunnel.memory.structure import Holding, units_holding
from windtunnel.ops.chunk import NO_PARAMETERS, LocalParameters, unit_parameters
from windtunnel.projection.choices import Kernels
from windtunnel.projection.contents import Contents, Floats
from windtunnel.projection.options import Columns
from windtunnel.step.chunk import UnitCost, excess, unit_cost
from windtunnel.step.host import HostSeconds, chunk_host

KEPT = tuple(item.name for item in fields(KeptChunk))
INNERMOST = ("tp", "cp", "ep")
"""Groups that run inside a unit. Where they come first in the group order, nothing moves them."""


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """A job without pipeline, replicas and recompute: ``timed`` for seconds, ``kept`` for bytes. What is asked of it
    is remembered."""

    timed: Job
    kept: Job
    _costs: dict[Any, UnitCost] = field(default_factory=dict)
    _seconds: dict[Any, Floats] = field(default_factory=dict)
    _kept: dict[Any, KeptUnit] = field(default_factory=dict)
    _bytes: dict[Any, Floats] = field(default_factory=dict)
    _parameters: dict[Any, LocalParameters] = field(default_factory=dict)
    _holdings: dict[Any, Holding] = field(default_factory=dict)
    _rates: dict[Columns, ByteRates] = field(default_factory=dict)
    _highest: dict[Columns, Floats] = field(default_factory=dict)

    def costs(self, found: Contents, kernels: Kernels) -> list[UnitCost]:
        """Every unit of the contents, run with some kernels."""
        key = kernels.priced
        missing = [unit for unit in found.units if (key, unit) not in self._costs]
        if missing:
            varied = kernels.apply(self.timed).plan
            # An overlap of expert traffic that the schedule brings remains; transfers are no part of a unit.
            overlap = replace(varied.overlap, ep_comm=kernels.ep_comm or self.timed.plan.overlap.ep_comm, p2p=False)
            job = replace(self.timed, plan=replace(varied, overlap=overlap))
            source = simulated_source(job)
            self._costs.update({(key, unit): unit_cost(source, job, unit) for unit in missing})
        return [self._costs[key, unit] for unit in found.units]

    def seconds(self, found: Contents, kernels: Kernels) -> Floats:
        """F, B and W of every content, ``[phase, content]``, without waiting for transfers."""
        key = (found, kernels.priced)
        if key not in self._seconds:
            self._seconds[key] = self._priced(found, kernels)
        return self._seconds[key]

    def _priced(self, found: Contents, kernels: Kernels) -> Floats:
        priced = self.costs(found, kernels)
        phases = [(u.cost.forward.total, u.cost.backward_input.total, u.cost.backward_weight.total) for u in priced]
        launches = np.array([(u.host.forward, u.host.backward) for u in priced])
        host_of = {head: chunk_host(self.timed, head=head) for head in (False, True)}
        ends = [host_of[chunk.head] for chunk in found.chunks]
        host = found.counts @ launches + np.array([(end.forward, end.backward) for end in ends])
        forward, backward_input, backward_weight = (found.counts @ np.array(phases)).T
        device = forward + backward_input + backward_weight
        beyond = excess(HostSeconds(host[:, 0], host[:, 1]), device, self.timed.constants.host.sharpness)
        return np.stack([forward + beyond.forward, backward_input + beyond.backward, backward_weight])

    def bytes(self, found: Contents, dispatcher: Dispatcher, offload: float) -> Floats:
        """``KeptChunk`` of every content, ``[field, content]``."""
        key = (found, dispatcher, offload)
        if key not in self._bytes:
            self._bytes[key] = self._counted(found, dispatcher, offload)
        return self._bytes[key]

    def _counted(self, found: Contents, dispatcher: Dispatcher, offload: float) -> Floats:
        plan = self.kept.plan
        moe, host = replace(plan.moe, dispatcher=dispatcher), replace(plan.offload, activations=offload)
        job = replace(self.kept, plan=replace(plan, moe=moe, offload=host))
        for unit in found.units:
            if (dispatcher, offload, unit) not in self._kept:
                self._kept[dispatcher, offload, unit] = kept_unit(job, unit)
        each = [self._kept[dispatcher, offload, unit] for unit in found.units]
        of = {item.name: np.array([getattr(unit, item.name) for unit in each]) for item in fields(KeptUnit)}
        summed = {name: found.counts @ of[name] for name in ("activations", "dispatcher", "offloaded")}
        largest = {name: np.max((found.counts > 0) * of[name], axis=1) for name in ("backward", "recompute")}
        logits = np.array([chunk_logits(job, chunk) for chunk in found.chunks]).T
        known = {**summed, **largest, **dict(zip(("logits", "loss_peak", "loss_cached"), logits, strict=True))}
        return np.stack([known[name] for name in KEPT])

    def parameters(self, found: Contents, contents: Sequence[int]) -> LocalParameters:
        """Parameters of a stage that holds these contents."""
        total = NO_PARAMETERS
        for content in contents:
            for unit, occurrences in found.counted[content]:
                if unit not in self._parameters:
                    self._parameters[unit] = unit_parameters(self.kept, unit)
                total += self._parameters[unit].times(occurrences)
        return total

    def holding(self, found: Contents, contents: Sequence[int], sharding: Sharding) -> Holding:
        """What a stage of these contents holds whatever is in flight."""
        held = dict.fromkeys(
            replace(unit, recompute=frozenset()) for content in contents for unit, _ in found.counted[content]
        )
        key = (*held, sharding.shards_parameters)
        if key not in self._holdings:
            job = replace(self.kept, plan=replace(self.kept.plan, sharding=replace(sharding, shard_size=1)))
            self._holdings[key] = units_holding(job, tuple(held))
        return self._holdings[key]

    def rates(self, columns: Columns) -> ByteRates:
        """The byte rates of every state of the columns, as one ``ByteRates`` of arrays; a shard size changes none."""
        if columns not in self._rates:
            each = [byte_rates(self._sharded(strategy, optimizer)) for strategy, _, optimizer in columns.states]
            of: dict[str, Any] = {f.name: np.array([getattr(r, f.name) for r in each]) for f in fields(ByteRates)}
            self._rates[columns] = ByteRates(**of)
        return self._rates[columns]

    def highest(self, columns: Columns) -> Floats:
        """The high end of measured over projected bytes, by state of the columns."""
        if columns not in self._highest:
            each = [residuals(self._sharded(strategy, optimizer))[1] for strategy, _, optimizer in columns.states]
            self._highest[columns] = np.array(each)
        return self._highest[columns]

    def _sharded(self, strategy: Strategy, optimizer: Literal["none", "cpu"]) -> Job:
        plan = self.kept.plan
        sharding = replace(plan.sharding, strategy=strategy)
        return replace(
            self.kept, plan=replace(plan, sharding=sharding, offload=replace(plan.offload, optimizer=optimizer))
        )


def shape_of(job: Job) -> Shape:
    """The shape of a job; the same object for jobs that differ in their pipeline, replicas or recompute alone."""
    plan, parallel, size = job.plan, job.plan.parallel, job.plan.batch.micro_batch_size
    if parallel.order[: len(INNERMOST)] == INNERMOST:
        # Of the stages a unit knows whether there are several: a tied head is a copy then.
        parallel = replace(parallel, pp=min(parallel.pp, 2), dp=1, order=Parallel().order)
    ep_comm = plan.pipeline.schedule in OVERLAPPING_SCHEDULES
    bare = replace(
        plan,
        parallel=parallel,
        pipeline=NO_PIPELINE,
        batch=Batch(micro_batch_size=size, global_batch_size=size, sequence_length=plan.batch.sequence_length),
        sharding=replace(plan.sharding, shard_size=1),
        recompute=(),
        overlap=replace(plan.overlap, ep_comm=ep_comm),
    )
    return _shape(job.model, job.cluster, job.software, job.constants, bare, len(plan.recompute))


NO_PIPELINE = Pipeline(schedule="1f1b", virtual_stages=1, layout=(), microbatch_group_size=1)


@lru_cache(maxsize=64)
def _shape(
    model: ModelSpec, cluster: Cluster, software: Software, constants: Constants, plan: Plan, num_layers: int
) -> Shape:
    timed = Job(model=model, cluster=cluster, software=software, constants=constants, plan=plan)
    recompute = (frozenset[str](),) * num_layers
    return Shape(timed, replace(timed, plan=replace(plan, overlap=Overlap(), recompute=recompute)))
