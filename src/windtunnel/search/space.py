"""The space of plans: axes with the values worth trying, derived from model, cluster and framework."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from windtunnel.job.job import Job

Changes = dict[str, Any]

SHARDING = "plan.sharding.strategy"
SHARD_SIZE = "plan.sharding.shard_size"
GRAD_REDUCE = "plan.overlap.grad_reduce"
PARAM_GATHER = "plan.overlap.param_gather"
OPTIMIZER_OFFLOAD = "plan.offload.optimizer"
INNER = (SHARDING, SHARD_SIZE, GRAD_REDUCE, PARAM_GATHER, OPTIMIZER_OFFLOAD)
"""Axes that leave the chunks of a job alone: they are scored as arrays."""

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
        """The space with these values in place of its own; paths it did not have become axes."""
        mine = {axis.path: axis for axis in self.axes}
        mine |= {path: Axis(path, tuple(found)) for path, found in values.items()}
        return Space(tuple(mine.values()))

    @property
    def outer(self) -> tuple[Axis, ...]:
        return tuple(axis for axis in self.axes if axis.path not in INNER)

    @property
    def inner(self) -> dict[str, tuple[Any, ...]]:
        return {axis.path: axis.values for axis in self.axes if axis.path in INNER}

    def outer_points(self) -> Iterator[Changes]:
        """Every combination of the outer axes."""
        for values in product(*(axis.values for axis in self.outer)):
            yield dict(zip((axis.path for axis in self.outer), values, strict=True))


def default_space(job: Job) -> Space:
    """What the job's framework can run on its cluster with its model, global batch, precision and sequence length."""
    axes = [*_degrees(job), *_batch(job), *_recompute(job), *_switches(job), *_sharding(job)]
    return Space(tuple(axis for axis in axes if axis.values))


def _degrees(job: Job) -> list[Axis]:
    world, model, parallel = job.cluster.num_accelerators, job.model, job.plan.parallel
    inside = max(job.cluster.scale_up.domain_size, job.cluster.accelerators_per_node, parallel.tp)
    tp = [n for n in _powers(min(inside, 16, world)) if model.num_attention_heads % n == 0]
    cp = _powers(min(world, 32)) if job.plan.batch.sequence_length >= LONG else [1]
    pp = [n for n in range(1, min(world, model.num_layers) + 1) if world % n == 0]
    virtual = [n for n in range(1, MAX_VIRTUAL + 1) if any((model.num_layers + k) % n == 0 for k in (0, 1, 2))]
    axes = [
        Axis("plan.parallel.tp", _with(tp, parallel.tp)),
        Axis("plan.parallel.cp", _with(cp, parallel.cp)),
        Axis("plan.parallel.pp", _with(pp, parallel.pp)),
        Axis("plan.pipeline.virtual_stages", _with(virtual, job.plan.pipeline.virtual_stages)),
    ]
    if model.is_moe and model.moe is not None:
        ep = [n for n in _powers(min(64, world)) if model.moe.num_experts % n == 0]
        axes += [
            Axis("plan.parallel.ep", _with(ep, parallel.ep)),
            Axis("plan.parallel.etp", _with([1, 2], parallel.etp) if job.software.is_megatron else (parallel.etp,)),
        ]
    return axes


def _batch(job: Job) -> list[Axis]:
    batch = job.plan.batch
    sizes = [n for n in (1, 2, 4, 8, 16) if batch.global_batch_size % n == 0]
    return [Axis("plan.batch.micro_batch_size", _with(sizes, batch.micro_batch_size))]


def _recompute(job: Job) -> list[Axis]:
    """No recompute, cheap modules, and whole layers."""
    policies: list[dict[str, Any]] = [{"policy": "none"}, {"policy": "full"}]
    if job.software.is_megatron:
        cheap = ["layernorm", *(["moe_act"] if job.model.is_moe else []), *(["mla_up_proj"] if job.model.mla else [])]
        policies += [{"policy": "modules", "modules": cheap}]
        policies += [{"policy": "modules", "modules": [*cheap, "mlp"]}] if not job.model.is_moe else []
        policies += (
            [{"policy": "modules", "modules": [*cheap, "core_attn"]}] if job.software.attention == "unfused" else []
        )
    elif job.software.traits.kept_tensors == "torchtitan":
        policies += [{"policy": "per_op"}]
    return [Axis("plan.recompute", tuple(policies))]


def _switches(job: Job) -> list[Axis]:
    axes = []
    if job.model.is_moe and job.software.is_megatron:
        axes.append(Axis("plan.moe.dispatcher", ("alltoall", "deepep")))
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


@dataclass(frozen=True, slots=True)
class Choice:
    """The values of the inner axes of one plan."""

    strategy: str
    shard_size: int
    grad_reduce: bool
    param_gather: bool
    optimizer_offload: str

    def changes(self) -> Changes:
        return {
            SHARDING: self.strategy,
            SHARD_SIZE: self.shard_size,
            GRAD_REDUCE: self.grad_reduce,
            PARAM_GATHER: self.param_gather,
            OPTIMIZER_OFFLOAD: self.optimizer_offload,
        }

    def apply(self, job: Job) -> Job:
        """``job`` with these values, everything else untouched."""
        plan = job.plan
        return replace(
            job,
            plan=replace(
                plan,
                sharding=replace(plan.sharding, strategy=self.strategy, shard_size=self.shard_size),  # type: ignore[arg-type]
                overlap=replace(plan.overlap, grad_reduce=self.grad_reduce, param_gather=self.param_gather),
                offload=replace(plan.offload, optimizer=self.optimizer_offload),  # type: ignore[arg-type]
            ),
        )


def choices(job: Job, inner: Mapping[str, Sequence[Any]]) -> list[Choice]:
    """Distinct combinations of the inner axes for one outer point: ddp shards nothing, so it has one size and no
    gathers; the other sizes divide dp · cp. Values that the space does not name are the job's."""
    plan, replicas = job.plan, job.plan.parallel.dp * job.plan.parallel.cp
    asked = inner.get(SHARD_SIZE, (plan.sharding.shard_size,))
    sizes = divisors(replicas) if "divisors" in asked else [size for size in asked if replicas % size == 0]
    found = []
    for strategy in inner.get(SHARDING, (plan.sharding.strategy,)):
        shards = strategy != "ddp"
        own = (sizes if strategy != "hsdp" else [n for n in sizes if n < replicas]) if shards else [replicas]
        gathers = inner.get(PARAM_GATHER, (plan.overlap.param_gather,)) if shards else (False,)
        reduces = inner.get(GRAD_REDUCE, (plan.overlap.grad_reduce,))
        offloads = inner.get(OPTIMIZER_OFFLOAD, (plan.offload.optimizer,))
        found += [Choice(strategy, *rest) for rest in product(own, reduces, gathers, offloads)]
    return found
