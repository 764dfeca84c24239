"""Model FLOPs of one token, in the four conventions in use, from the same ops that are priced."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from windtunnel.job.job import Job
from windtunnel.job.model import LayerSpec, ModelSpec
from windtunnel.job.plan import Parallel
from windtunnel.ops.context import Context, context
from windtunnel.ops.layer import lower_head, lower_layer
from windtunnel.ops.op import Attention, Op
from windtunnel.ops.weights import active_parameters
from windtunnel.projection.result import FlopsPerToken


def flops_per_token(job: Job) -> FlopsPerToken:
    """Forward and backward FLOPs of one token of the unsharded model; MTP depths included, padding excluded.

    causal_half counts half the score matrix, full_attention all of it, hardware adds what is re-executed, 6nd is six
    times the parameters a token uses.
    """
    ctx = _whole(job)
    forward, scores = _model_forward(job.model, ctx)
    again = _recomputed(job, ctx)
    return FlopsPerToken(
        causal_half=3 * (forward + scores),
        full_attention=3 * (forward + 2 * scores),
        hardware=3 * (forward + 2 * scores) + again,
        six_nd=6.0 * active_parameters(job.model, embedding=True, head=True),
    )


def _whole(job: Job) -> Context:
    """The context of one rank that holds the whole model, with balanced routing and no padding."""
    plan = replace(
        job.plan,
        parallel=Parallel(order=job.plan.parallel.order),
        moe=replace(job.plan.moe, imbalance=1.0, capacity_factor=None),
        batch=replace(job.plan.batch, micro_batch_size=1),
    )
    return context(replace(job, plan=plan))


@lru_cache(maxsize=512)
def _model_forward(model: ModelSpec, ctx: Context) -> tuple[float, float]:
    """Forward FLOPs of a token: everything but the scores, and the causal half of the scores."""
    matrices = scores = 0.0
    layers = [*model.layers, *[model.mtp_layer] * model.num_mtp_layers]
    for layer in layers:
        more, attention = _layer_forward(model, layer, ctx)
        matrices, scores = matrices + more, scores + attention
    head, _ = _split(lower_head(model, model.vocab_size, ctx), ctx)
    return matrices + head * (1 + model.num_mtp_layers), scores


@lru_cache(maxsize=1024)
def _layer_forward(model: ModelSpec, layer: LayerSpec, ctx: Context) -> tuple[float, float]:
    return _split(lower_layer(model, layer, ctx), ctx)


def _split(ops: tuple[Op, ...], ctx: Context) -> tuple[float, float]:
    forward = [op for op in ops if op.phase == "F"]
    scores = sum(op.flops for op in forward if isinstance(op, Attention))
    return (sum(op.flops for op in forward) - scores) / ctx.tokens, scores / ctx.tokens


def _recomputed(job: Job, ctx: Context) -> float:
    """Forward FLOPs a token runs a second time, with the full score matrix."""
    total = 0.0
    for layer, recompute in zip(job.model.layers, job.plan.recompute, strict=False):
        if recompute:
            total += _again(job.model, layer, ctx, recompute, job.constants.step.per_op_gemm)
    return total


@lru_cache(maxsize=1024)
def _again(model: ModelSpec, layer: LayerSpec, ctx: Context, recompute: frozenset[str], per_op: float) -> float:
    if "per_op" in recompute:
        return per_op * _layer_forward(model, layer, ctx)[0]
    ops = lower_layer(model, layer, ctx)
    repeated = [op for op in ops if op.phase == "F" and ("full" in recompute or op.modules & recompute)]
    return sum(op.flops * (2 if isinstance(op, Attention) else 1) for op in repeated) / ctx.tokens
