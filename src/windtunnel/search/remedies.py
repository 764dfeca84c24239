"""What can be changed about a job that needs too much memory: one small change each, none of them judged here."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from windtunnel.job.job import Job
from windtunnel.job.plan import LOOPED_SCHEDULES
from windtunnel.search.space import Changes

MODULES = ("core_attn", "layernorm", "moe_act", "mla_up_proj", "shared_experts", "mlp", "moe")
"""Recompute modules, about the cheapest to run again first."""
_TIGHTER = {"ddp": ("zero1", "fsdp"), "zero1": ("zero2", "zero3"), "zero2": ("zero3",), "hsdp": ("fsdp",)}


def remedies(job: Job) -> Iterator[Changes]:
    """Single changes of a plan that may save memory, then those of the machine; some need not be legal."""
    yield from _allocator(job)
    yield from _loss(job)
    yield from _recompute(job)
    yield from _batch(job)
    yield from _sharding(job)
    yield from _pipeline(job)
    yield from _degrees(job)
    yield from _offload(job)
    yield from _precision(job)
    yield from more_accelerators(job)


def more_accelerators(job: Job) -> Iterator[Changes]:
    yield from ({"cluster.num_accelerators": job.cluster.num_accelerators * factor} for factor in (2, 4, 8))


def _allocator(job: Job) -> Iterator[Changes]:
    if job.software.allocator == "default" and not job.cluster.accelerator.is_tpu:
        yield {"software.allocator": "expandable_segments"}


def _loss(job: Job) -> Iterator[Changes]:
    if job.plan.loss.kernel in ("te", "liger", "chunked"):
        return
    if job.software.is_megatron and job.software.transformer_impl == "te":
        yield {"plan.loss.fused_cross_entropy": True, "plan.loss.implementation": "te"}
    elif job.software.traits.kept_tensors == "torchtitan":
        yield {"plan.loss.implementation": "chunked"}


def _recompute(job: Job) -> Iterator[Changes]:
    """One module more, whole layers of every chunk in growing number, or torch's per-op policy."""
    kept = frozenset.intersection(*job.plan.recompute) if job.plan.recompute else frozenset[str]()
    if "full" in kept:
        return
    present = _modules(job)
    if job.software.is_megatron:
        named = sorted(kept & set(MODULES), key=MODULES.index)
        for module in MODULES:
            if module in present and module not in kept:
                yield {"plan.recompute": {"policy": "modules", "modules": [*named, module]}}
        layers = max(len(chunk.layers) for chunk in job.plan.pipeline.layout)
        yield from ({"plan.recompute": {"policy": "block", "num_layers": n}} for n in _steps(layers))
    elif job.software.traits.kept_tensors == "torchtitan" and "per_op" not in kept:
        yield {"plan.recompute": {"policy": "per_op"}}
    yield {"plan.recompute": {"policy": "full"}}


def _modules(job: Job) -> frozenset[str]:
    """Recompute modules that the job's layers have."""
    moe, layers = job.model.moe, job.model.layers
    found = {"layernorm"}
    found |= {"core_attn"} if any(layer.mixer == "attention" for layer in layers) else set()
    found |= {"mla_up_proj"} if job.model.mla is not None else set()
    found |= {"mlp"} if any(layer.feed_forward == "dense" for layer in layers) else set()
    if moe is not None:
        found |= {"moe", "moe_act"} | ({"shared_experts"} if moe.shared_expert_intermediate_size else set())
    return frozenset(found)


def _steps(count: int) -> list[int]:
    """1, 2, 3 and then larger steps up to one less than ``count``."""
    return [n for n in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48) if n < count]


def _batch(job: Job) -> Iterator[Changes]:
    size = job.plan.batch.micro_batch_size
    while size > 1:
        size = next(n for n in range(size // 2, 0, -1) if job.plan.batch.micro_batch_size % n == 0)
        yield {"plan.batch.micro_batch_size": size}


def _sharding(job: Job) -> Iterator[Changes]:
    sharding, replicas = job.plan.sharding, job.plan.parallel.dp * job.plan.parallel.cp
    if replicas == 1:
        return
    for strategy in _TIGHTER.get(sharding.strategy, ()):
        yield {"plan.sharding.strategy": strategy}
    if sharding.shard_size < replicas:
        yield {"plan.sharding.shard_size": replicas}


def _pipeline(job: Job) -> Iterator[Changes]:
    """Other numbers of chunks, leaner schedules, and a layer less on the stage that is fullest at either end."""
    plan, layers = job.plan, job.model.num_layers
    p, v = plan.parallel.pp, plan.pipeline.virtual_stages
    if p == 1:
        return
    for chunks in range(1, 13):
        if chunks != v and layers % (p * chunks) == 0 and plan.pipeline.schedule in (*LOOPED_SCHEDULES, "1f1b"):
            yield {"plan.pipeline.virtual_stages": chunks}
    for schedule in ("v_half", "v_min"):
        if plan.pipeline.schedule != schedule:
            yield {"plan.pipeline.schedule": schedule, "plan.pipeline.virtual_stages": 2}
    if v == 1:
        for end, chunk in (("first", plan.pipeline.layout[0]), ("last", plan.pipeline.layout[-1])):
            for fewer in (1, 2):
                if (layers - len(chunk.layers) + fewer) % (p - 1) == 0 and len(chunk.layers) > fewer:
                    yield {f"plan.pipeline.{end}_stage_layers": len(chunk.layers) - fewer}


def _degrees(job: Job) -> Iterator[Changes]:
    """Tensor, pipeline, context and expert parallelism twice or four times as wide on the same accelerators."""
    parallel = job.plan.parallel
    world = job.cluster.num_accelerators
    degrees = {"tp": parallel.tp, "pp": parallel.pp, "cp": parallel.cp}
    for name, degree in degrees.items():
        others = prod(size for other, size in degrees.items() if other != name)
        for factor in (2, 4):
            if world % (others * degree * factor) == 0:
                yield {f"plan.parallel.{name}": degree * factor}
    if job.model.is_moe:
        yield from ({"plan.parallel.ep": parallel.ep * factor} for factor in (2, 4))


def _offload(job: Job) -> Iterator[Changes]:
    if job.cluster.accelerator.is_tpu:
        return
    if job.plan.offload.optimizer == "none":
        yield {"plan.offload.optimizer": "cpu"}
    yield from (
        {"plan.offload.activations": share} for share in (0.25, 0.5, 0.75) if share > job.plan.offload.activations
    )


def _precision(job: Job) -> Iterator[Changes]:
    precision = job.plan.precision
    if not job.software.is_megatron:
        return
    if precision.optimizer_state == "fp32":
        yield {"plan.precision.optimizer_state": "bf16"}
    if precision.grads == "fp32":
        yield {"plan.precision.grads": "bf16", "plan.precision.grad_reduce": "bf16"}
