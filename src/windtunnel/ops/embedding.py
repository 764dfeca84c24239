"""The ends of the model: token embedding, final norm with head and loss, and multi-token-prediction depths."""

from __future__ import annotations

from windtunnel.job.model import ModelSpec
from windtunnel.ops.context import Context
from windtunnel.ops.linear import linear
from windtunnel.ops.norm import norm
from windtunnel.ops.op import Collective, Kept, Op, Stream


def embedding(model: ModelSpec, ctx: Context) -> tuple[Op, ...]:
    """Gather rows in forward, accumulate fp32 row gradients in backward; vocabulary-parallel ranks reduce the sum."""
    h = model.hidden_size
    ops: tuple[Op, ...] = (
        Stream(name="embedding", phase="F", kind="embedding", bytes_moved=4 * h * ctx.tokens),
        Stream(name="embedding", phase="W", kind="embedding", bytes_moved=8 * h * ctx.tokens),
    )
    if ctx.tp == 1:
        return ops
    size = ctx.tokens * h * ctx.width
    kind = "reduce_scatter" if ctx.sequence_parallel else "all_reduce"
    reduce = Collective(name="embedding", phase="F", collective=kind, group="tp", size=size)  # type: ignore[arg-type]
    gather = Collective(name="embedding", phase="B", collective="all_gather", group="tp", size=size)
    return (*ops, reduce, *((gather,) if ctx.sequence_parallel else ()))


def head(model: ModelSpec, vocab: int, ctx: Context, *, name: str = "head") -> tuple[Op, ...]:
    """Final norm, logits, cross-entropy; always in the high-precision dtype."""
    h, local = model.hidden_size, vocab / ctx.tp
    gather = ctx.tokens * h * ctx.width
    collectives: tuple[Op, ...] = ()
    if ctx.tp > 1 and ctx.sequence_parallel:
        collectives = (
            Collective(name=name, phase="F", collective="all_gather", group="tp", size=gather),
            Collective(name=name, phase="B", collective="reduce_scatter", group="tp", size=gather),
        )
    elif ctx.tp > 1:
        collectives = (Collective(name=name, phase="B", collective="all_reduce", group="tp", size=gather),)
    return (
        *norm(model, ctx, f"{name}_norm", layer_input=True, feeds_gemm=False),
        *collectives,
        *linear(f"{name}_logits", ctx, ctx.tokens, local, h, compute="bf16"),
        *_cross_entropy(ctx, local if ctx.loss.vocab_parallel else vocab, name),
        *_loss_traffic(ctx, vocab, name),
    )


def _cross_entropy(ctx: Context, vocab: float, name: str) -> tuple[Op, ...]:
    """Bytes per local logit: 5 and 4 in one fused kernel, 11 and 8 where a compiler joins neighbours, 38 and 14 in
    eager torch, where forward is a cast to fp32, max, subtraction, exp, sum and division, backward a product and a cast
    (NVIDIA/Megatron-LM megatron/core/tensor_parallel/cross_entropy.py)."""
    fused = ctx.loss.kernel != "eager"
    forward, backward = (5, 4) if fused else (11, 8) if ctx.compiled else (38, 14)
    logits = ctx.tokens * vocab
    return (
        Stream(name=f"{name}_loss", phase="F", bytes_moved=forward * logits, kernels=1 if fused else 6),
        Stream(name=f"{name}_loss", phase="B", bytes_moved=backward * logits, kernels=1 if fused else 4),
    )


_FP32 = 4


def _loss_traffic(ctx: Context, vocab: int, name: str) -> tuple[Op, ...]:
    """Ranks that hold a part of the vocabulary each reduce fp32 figures of every token: the highest logit, the sum and
    the label's logit, one after the other, or the last two as one where fused (NVIDIA/Megatron-LM megatron/core/
    tensor_parallel/cross_entropy.py, megatron/core/fusions/fused_cross_entropy.py); Transformer Engine gathers all
    three at once (transformer_engine/pytorch/triton/cross_entropy.py). Otherwise they gather the logits."""
    if ctx.tp == 1:
        return ()
    if not ctx.loss.vocab_parallel:
        size = ctx.tokens * vocab * ctx.width
        return (Collective(name=f"{name}_loss", phase="F", collective="all_gather", group="tp", size=size),)
    figures = _FP32 * ctx.tokens
    if ctx.loss.kernel == "te":
        size = 3 * figures * ctx.tp
        return (Collective(name=f"{name}_loss", phase="F", collective="all_gather", group="tp", size=size),)
    sizes = (figures, 2 * figures) if ctx.loss.kernel == "fused" else (figures, figures, figures)
    return ctx.loss_pieces * tuple(
        Collective(name=f"{name}_loss", phase="F", collective="all_reduce", group="tp", size=size / ctx.loss_pieces)
        for size in sizes
    )


def mtp_projection(model: ModelSpec, ctx: Context) -> tuple[Op, ...]:
    """An MTP depth joins the hidden state with the next token's embedding: two norms and a 2h → h projection."""
    h = model.hidden_size
    joined = ctx.width * ctx.sequence_tokens * 2 * h
    return (
        *norm(model, ctx, "mtp_hidden_norm", copied=True),
        *norm(model, ctx, "mtp_embedding_norm", copied=True),
        *linear("mtp_projection", ctx, ctx.sequence_tokens, h, 2 * h, keeps=(Kept("mtp_joined", joined),)),
    )
