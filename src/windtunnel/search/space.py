"""The space of plans: axes with the values worth trying, derived from model, cluster and framework."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from windtunnel.job.job import Job
from windtunnel.job.recompute import spelled
from windtunnel.projection.choices import (
    ACTIVATION_OFFLOAD,
    CP_COMM,
    DISPATCHER,
    EP_COMM,
    GRAD_REDUCE,
    OPTIMIZER_OFFLOAD,
    P2P,
    PARAM_GATHER,
    RECOMPUTE,
    SHARD_SIZE,
    SHARDING,
    TP_COMM,
    Changes,
)
from windtunnel.schedule.registry import find

SCHEDULE = "plan.pipeline.schedule"
VIRTUAL_STAGES = "plan.pipeline.virtual_stages"
LAYOUT = "plan.pipeline.layout"
ORDER = "plan.parallel.order"
ORDERS = ("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp")
"""Replicas of a stage next to each other, or the stages of a replica."""
EVEN, BALANCED = "even", "balanced"
"""What the layout axis takes beside a written layout: as the framework cuts, and by what the chunks cost."""
PIPELINE = {path: place for place, path in enumerate(("plan.parallel.pp", SCHEDULE, VIRTUAL_STAGES, LAYOUT, ORDER))}
"""Axes that leave the kernels of a rank alone, in the order in which they vary, the last one fastest."""

VARIANT_AXES = (RECOMPUTE, DISPATCHER, TP_COMM, CP_COMM, EP_COMM, P2P, ACTIVATION_OFFLOAD)
"""Axes that change what a chunk costs and keeps, not which chunks there are."""
CHOICE_AXES = (SHARDING, SHARD_SIZE, GRAD_REDUCE, PARAM_GATHER, OPTIMIZER_OFFLOAD)
"""Axes that leave the chunks of a job alone."""
INNER = frozenset((*VARIANT_AXES, *CHOICE_AXES))
"""Axes whose values are scored together, as arrays."""

LONG = 32768
"""Tokens of a sequence from which splitting it over ranks is worth trying."""
MAX_VIRTUAL = 12


@dataclass(frozen=True, slots=True)
class Axis:
    """One path of the job and the values it may take."""

    path: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Space:
    """The product of its axes; those not named keep the job's value."""

    axes: tuple[Axis, ...]

    def pinned(self, values: Mapping[str, Sequence[Any]]) -> Space:
        """The space with these values in place of its own; paths it did not have become axes.

        A path inside an axis, as ``plan.recompute.policy``, takes its place.
        """
        above = {path.rpartition(".")[0] for path in values}
        mine = {axis.path: axis for axis in self.axes if axis.path not in above}
        mine |= {path: Axis(path, tuple(found)) for path, found in values.items()}
        return Space(tuple(mine.values()))

    @property
    def inner(self) -> dict[str, tuple[Any, ...]]:
        return {axis.path: axis.values for axis in self.axes if axis.path in INNER}

    @property
    def grid(self) -> Grid:
        """The combinations of the axes that decide which chunks there are and who runs them."""
        outer = [axis for axis in self.axes if axis.path not in INNER]
        return Grid(tuple(sorted(outer, key=lambda axis: PIPELINE.get(axis.path, -1))))


@dataclass(frozen=True, slots=True)
class Grid:
    """Grid points by number, those with the same kernels next to each other: the last axes are those of the pipeline,
    and the very last is the group order, which changes neither kernels nor memory."""

    axes: tuple[Axis, ...]

    def __len__(self) -> int:
        return prod(len(axis.values) for axis in self.axes)

    def __getitem__(self, number: int) -> Changes:
        values = []
        for axis in reversed(self.axes):
            number, position = divmod(number, len(axis.values))
            values.append((axis.path, axis.values[position]))
        return dict(reversed(values))

    def __iter__(self) -> Iterator[Changes]:
        return map(self.__getitem__, range(len(self)))

    def runs(self, most: int) -> Iterator[range]:
        """Numbers of consecutive points, at most so many, of equal kernels."""
        alike = prod(len(axis.values) for axis in self.axes if axis.path in PIPELINE)
        for start in range(0, len(self), alike):
            for first in range(start, start + alike, most):
                yield range(first, min(first + most, start + alike))


def default_space(job: Job) -> Space:
    """What the job's framework can run on its cluster with its model, global batch, precision and sequence length."""
    axes = [*_degrees(job), *_pipeline(job), *_batch(job), *_recompute(job), *_switches(job), *_sharding(job)]
    return Space(tuple(axis for axis in axes if axis.values))


def _degrees(job: Job) -> list[Axis]:
    world, model, parallel = job.cluster.num_accelerators, job.model, job.plan.parallel
    inside = max(job.cluster.scale_up.domain_size, job.cluster.accelerators_per_node, parallel.tp)
    tp = [n for n in _powers(min(inside, 16, world)) if model.num_attention_heads % n == 0]
    cp = _powers(min(world, 32)) if job.plan.batch.sequence_length >= LONG else [1]
    pp = [n for n in range(1, min(world, model.num_layers) + 1) if world % n == 0]
    axes = [
        Axis("plan.parallel.tp", _with(tp, parallel.tp)),
        Axis("plan.parallel.cp", _with(cp, parallel.cp)),
        Axis("plan.parallel.pp", _with(pp, parallel.pp)),
    ]
    if job.software.is_megatron and world > job.cluster.scale_up.domain_size:
        axes.append(Axis(ORDER, _with(ORDERS, "-".join(parallel.order))))
    if model.is_moe and model.moe is not None:
        ep = [n for n in _powers(min(64, world)) if model.moe.num_experts % n == 0]
        axes += [
            Axis("plan.parallel.ep", _with(ep, parallel.ep)),
            Axis("plan.parallel.etp", _with([1], parallel.etp) if job.software.is_megatron else (parallel.etp,)),
        ]
    return axes


def _pipeline(job: Job) -> list[Axis]:
    """Schedules the framework has, chunks per stage, and where the framework takes a layout, the balanced one."""
    pipeline, model = job.plan.pipeline, job.model
    virtual = [n for n in range(1, MAX_VIRTUAL + 1) if any((model.num_layers + k) % n == 0 for k in (0, 1, 2))]
    return [
        Axis(SCHEDULE, _with(job.software.traits.schedules, pipeline.schedule)),
        Axis(VIRTUAL_STAGES, _with(virtual, pipeline.virtual_stages)),
        Axis(LAYOUT, (EVEN, BALANCED) if job.software.is_megatron else (EVEN,)),
    ]


def _batch(job: Job) -> list[Axis]:
    batch = job.plan.batch
    sizes = [n for n in (1, 2, 4, 8, 16) if batch.global_batch_size % n == 0]
    return [Axis("plan.batch.micro_batch_size", _with(sizes, batch.micro_batch_size))]


def _recompute(job: Job) -> list[Axis]:
    """No recompute, cheap modules, whole layers, and where the framework counts them, some layers of each chunk."""
    policies: list[dict[str, Any]] = [{"policy": "none"}, {"policy": "full"}]
    if job.software.is_megatron:
        cheap = ["layernorm", *(["moe_act"] if job.model.is_moe else []), *(["mla_up_proj"] if job.model.mla else [])]
        policies += [{"policy": "modules", "modules": cheap}]
        policies += [{"policy": "modules", "modules": [*cheap, "mlp"]}] if not job.model.is_moe else []
        policies += (
            [{"policy": "modules", "modules": [*cheap, "core_attn"]}] if job.software.attention == "unfused" else []
        )
        policies += [{"policy": "block", "num_layers": n} for n in range(1, MAX_BLOCK + 1)]
    elif job.software.traits.kept_tensors == "torchtitan":
        policies += [{"policy": "per_op"}]
    own = spelled(job.plan.recompute, job.model.num_layers)
    return [Axis(RECOMPUTE, tuple(policies) if own in policies else (own, *policies))]


MAX_BLOCK = 16
"""Most layers of a chunk that the default space recomputes short of all."""


def _switches(job: Job) -> list[Axis]:
    """Dispatchers and overlaps that Megatron-core has as options; elsewhere they come with the framework."""
    if not job.software.is_megatron:
        return []
    both = (True, False)
    axes = [Axis(TP_COMM, both), Axis(P2P, both)]
    if job.model.is_moe:
        axes += [Axis(DISPATCHER, _with(("alltoall", "deepep"), job.plan.moe.dispatcher)), Axis(EP_COMM, both)]
    else:
        axes.append(Axis("plan.parallel.sequence_parallel", both))
    return axes


def _sharding(job: Job) -> list[Axis]:
    software, plan = job.software, job.plan
    if software.is_megatron:
        strategies: tuple[str, ...] = ("ddp", "zero1")
    elif software.framework == "deepspeed":
        strategies = ("zero1", "zero2", "zero3")
    else:
        strategies = ("fsdp", "hsdp")
    return [
        Axis(SHARDING, _with(strategies, plan.sharding.strategy)),
        Axis(SHARD_SIZE, ("divisors",)),
        Axis(GRAD_REDUCE, (True, False)),
        Axis(PARAM_GATHER, (True, False)),
        Axis(OPTIMIZER_OFFLOAD, ("none", "cpu")),
    ]


def _powers(limit: int) -> list[int]:
    return [1 << k for k in range(limit.bit_length()) if 1 << k <= limit]


def _with(values: Sequence[Any], current: Any) -> tuple[Any, ...]:
    """The values and the job's own, in order."""
    return tuple(sorted({*values, current}, key=lambda value: (str(type(value)), value)))


def divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]


def possible(job: Job, point: Changes) -> bool:
    """A quick look at the arithmetic of a grid point, before its job is built."""
    plan = job.plan

    def value(path: str, own: Any) -> Any:
        return point.get(path, own)

    world = int(value("cluster.num_accelerators", job.cluster.num_accelerators))
    tp, cp, pp = (int(value(f"plan.parallel.{name}", getattr(plan.parallel, name))) for name in ("tp", "cp", "pp"))
    if world % (tp * cp * pp) or (tp == 1 and point.get("plan.parallel.sequence_parallel")):
        return False
    if point.get(ORDER, ORDERS[0]) != ORDERS[0] and pp in (1, world // (tp * cp)):
        return False
    if not _schedulable(point, pp, job.model.num_layers):
        return False
    dp = world // (tp * cp * pp)
    micro = int(value("plan.batch.micro_batch_size", plan.batch.micro_batch_size))
    experts = int(value("plan.parallel.ep", 1)) * int(value("plan.parallel.etp", 1))
    batch = int(value("plan.batch.global_batch_size", plan.batch.global_batch_size))
    return batch % (micro * dp) == 0 and (tp * cp * dp) % experts == 0


def _schedulable(point: Changes, pp: int, layers: int) -> bool:
    """Whether the schedule takes the chunks; one stage has one schedule."""
    virtual = int(point.get(VIRTUAL_STAGES, 1))
    if (virtual > 1 and pp == 1) or virtual * pp > layers + 2 or (pp == 1 and point.get(LAYOUT) == BALANCED):
        return False
    if SCHEDULE not in point:
        return True
    if pp == 1:
        return str(point[SCHEDULE]) == "1f1b"
    schedule = find(str(point[SCHEDULE]))
    only = schedule.virtual_stages
    return virtual == only if only is not None else virtual >= schedule.min_virtual_stages
