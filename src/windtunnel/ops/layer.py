"""Lowers one layer: from its specification to the ops one rank executes for one micro-batch."""

from __future__ import annotations

from functools import lru_cache

from windtunnel.job.model import LayerSpec, ModelSpec
from windtunnel.ops.attention import attention
from windtunnel.ops.context import Context
from windtunnel.ops.embedding import embedding, head, mtp_projection
from windtunnel.ops.feed_forward import feed_forward
from windtunnel.ops.linear_attention import linear_attention
from windtunnel.ops.mla import latent_attention
from windtunnel.ops.moe import mixture_of_experts
from windtunnel.ops.op import Op


@lru_cache(maxsize=4096)
def lower_layer(model: ModelSpec, layer: LayerSpec, ctx: Context) -> tuple[Op, ...]:
    """Ops of one transformer layer, forward and backward, in forward order."""
    ops: tuple[Op, ...] = mtp_projection(model, ctx) if layer.is_mtp else ()
    if layer.mixer == "attention":
        mixer = latent_attention if model.mla is not None else attention
        ops += mixer(model, layer, ctx)
    elif layer.mixer == "linear_attention":
        ops += linear_attention(model, ctx)
    first = layer.mixer == "none"
    if layer.feed_forward == "dense":
        ops += feed_forward(model, layer.intermediate_size, ctx, layer_input=first)
    elif layer.feed_forward == "moe":
        ops += mixture_of_experts(model, ctx, layer_input=first)
    return ops


@lru_cache(maxsize=1024)
def lower_embedding(model: ModelSpec, ctx: Context) -> tuple[Op, ...]:
    return embedding(model, ctx)


@lru_cache(maxsize=1024)
def lower_head(model: ModelSpec, vocab: int, ctx: Context) -> tuple[Op, ...]:
    return head(model, vocab, ctx)


def kept_bytes(ops: tuple[Op, ...], recompute: frozenset[str]) -> tuple[float, float]:
    """Bytes kept for backward under ``recompute``, split into (activations, dispatcher)."""
    activations = dispatcher = 0.0
    for op in ops:
        for kept in op.keeps:
            if kept.survives(recompute):
                if kept.of == "dispatcher":
                    dispatcher += kept.bytes
                else:
                    activations += kept.bytes
    return activations, dispatcher
