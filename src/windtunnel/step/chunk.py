"""Seconds of one chunk for one micro-batch, and of each piece of it that data parallelism gathers and reduces."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import lru_cache

from windtunnel.cost.source import CostSource
from windtunnel.elementwise import TINY, Number, maximum, minimum
from windtunnel.job.job import Job
from windtunnel.job.plan import OVERLAPPING_SCHEDULES, Pipeline, Sharding
from windtunnel.ops.chunk import LocalParameters, Unit, lower_unit, unit_parameters, units
from windtunnel.ops.offload import offloaded_bytes
from windtunnel.ops.op import Op
from windtunnel.step.host import NOTHING, HostSeconds, chunk_host, layer_host
from windtunnel.step.layer import LayerCost, price_layer
from windtunnel.step.parts import ZERO, Parts
from windtunnel.step.settings import Settings, settings


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitCost:
    """One unit of a chunk: what it costs, what it holds, and how often it occurs."""

    cost: LayerCost
    host: HostSeconds
    parameters: LocalParameters
    occurrences: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkCost:
    """Parts of F, B (recompute included) and W of one chunk for one micro-batch; the host's excess is in them."""

    forward: Parts
    backward_input: Parts
    backward_weight: Parts
    hidden: dict[str, float]
    units: tuple[UnitCost, ...]

    @property
    def backward(self) -> float:
        return self.backward_input.total + self.backward_weight.total

    @property
    def parameters(self) -> LocalParameters:
        total = LocalParameters(0.0, 0.0)
        for unit in self.units:
            total += unit.parameters.times(unit.occurrences)
        return total


def price_chunks(job: Job, source: CostSource) -> tuple[ChunkCost, ...]:
    """Costs by global chunk; chunks made of the same units are priced once, also across jobs that differ only in what
    data parallelism and the schedule do."""
    base = stripped(job)
    made_of = [(units(job, chunk), chunk.head) for chunk in job.plan.pipeline.layout]
    priced = {key: _chunk_cost(source, base, *key) for key in dict.fromkeys(made_of)}
    return tuple(priced[key] for key in made_of)


def stripped(job: Job) -> Job:
    """The job without what leaves the cost of a chunk alone: data parallelism, order, number of micro-batches.

    A schedule that runs expert traffic beside its neighbour's compute overlaps it whatever the switch says.
    """
    plan = job.plan
    overlap = replace(plan.overlap, ep_comm=plan.overlap.ep_comm or plan.pipeline.schedule in OVERLAPPING_SCHEDULES)
    return Job(
        model=job.model,
        cluster=replace(job.cluster, num_accelerators=1),
        software=job.software,
        constants=job.constants,
        plan=replace(
            plan,
            parallel=replace(plan.parallel, dp=1),
            pipeline=Pipeline(schedule="1f1b", virtual_stages=1, layout=(), microbatch_group_size=1),
            batch=replace(plan.batch, global_batch_size=plan.batch.micro_batch_size),
            sharding=Sharding(strategy="ddp", shard_size=1),
            recompute=(),
            overlap=overlap,
        ),
    )


@lru_cache(maxsize=8192)
def _chunk_cost(source: CostSource, job: Job, made_of: tuple[tuple[Unit, int], ...], head: bool) -> ChunkCost:
    priced = tuple(replace(unit_cost(source, job, unit), occurrences=n) for unit, n in made_of)
    forward = backward_input = backward_weight = ZERO
    host = chunk_host(job, head=head)
    hidden: dict[str, float] = defaultdict(float)
    for unit in priced:
        n = unit.occurrences
        forward += unit.cost.forward.scaled(n)
        backward_input += unit.cost.backward_input.scaled(n)
        backward_weight += unit.cost.backward_weight.scaled(n)
        host += HostSeconds(unit.host.forward * n, unit.host.backward * n)
        for group, seconds in unit.cost.hidden.items():
            hidden[group] += seconds * n
    device = forward.total + backward_input.total + backward_weight.total
    beyond = excess(host, device, job.constants.host.sharpness)
    return ChunkCost(
        forward=forward + Parts(host=beyond.forward),
        backward_input=backward_input + Parts(host=beyond.backward),
        backward_weight=backward_weight,
        hidden=dict(hidden),
        units=priced,
    )


@lru_cache(maxsize=8192)
def unit_cost(source: CostSource, job: Job, unit: Unit) -> UnitCost:
    """One occurrence of a unit of a ``stripped`` job."""
    ops = lower_unit(job, unit)
    how = settings(job)
    cost = price_layer(source.within(job, unit), ops, unit.recompute, how)
    return UnitCost(
        cost=_offloaded(cost, ops, unit, how),
        host=layer_host(job, unit.layer, unit.recompute) if unit.layer else NOTHING,
        parameters=unit_parameters(job, unit),
        occurrences=1,
    )


def _offloaded(cost: LayerCost, ops: tuple[Op, ...], unit: Unit, how: Settings) -> LayerCost:
    """Kept activations leave in forward and return in backward over PCIe, beside the layer's compute."""
    if how.offload.activations <= 0 or unit.layer is None:
        return cost
    seconds = sum(offloaded_bytes(ops, unit.recompute, how.offload)) / how.pcie_bandwidth
    return replace(
        cost,
        forward=cost.forward + Parts(offload=max(0.0, seconds - cost.forward.total)),
        backward_input=cost.backward_input + Parts(offload=max(0.0, seconds - cost.backward)),
    )


def excess(host: HostSeconds, device: Number, sharpness: float) -> HostSeconds:
    """What the host adds beyond the device over F + B of a chunk, split as the launches are.

    A chunk alternates between stretches bound by either, so it passes from one to the other gradually: it lasts
    (device^s + host^s)^(1/s), the longer of the two where they differ much.
    """
    total = host.forward + host.backward
    ratio = total / maximum(device, TINY)
    smaller, larger = minimum(ratio, 1.0), maximum(ratio, 1.0)
    lasts = larger * (1 + (smaller / larger) ** sharpness) ** (1 / sharpness)
    share = device * (lasts - 1) / maximum(total, TINY)
    return HostSeconds(share * host.forward, share * host.backward)
