"""Norms and residual additions: the sequence-parallel parts of a layer."""

from __future__ import annotations

from windtunnel.job.model import ModelSpec
from windtunnel.ops.context import Context
from windtunnel.ops.linear import stream
from windtunnel.ops.op import Kept, Op

LAYERNORM = frozenset({"layernorm"})


def norm(
    model: ModelSpec,
    ctx: Context,
    name: str,
    *,
    layer_input: bool = False,
    feeds_gemm: bool = True,
    copied: bool = False,
) -> tuple[Op, ...]:
    """Forward reads x and writes y; backward reads dy and x, writes dx, and half a pass of parameter gradients.

    ``feeds_gemm``: y is read by GEMMs alone, so it waits for backward as they keep their inputs. ``copied``: y is
    copied into another tensor and does not wait itself.
    """
    elements = ctx.sequence_tokens * model.hidden_size
    width = 0.0 if copied else ctx.saved_width if feeds_gemm else ctx.width
    keeps = _kept(model, ctx, layer_input=layer_input, width=width)
    return stream(name, ctx, 2 * elements, 3.5 * elements, modules=LAYERNORM, keeps=keeps)


def residual(model: ModelSpec, ctx: Context, name: str) -> tuple[Op, ...]:
    """Bias, dropout and addition: reads branch and residual, writes the sum; backward passes the gradient on twice."""
    elements = ctx.sequence_tokens * model.hidden_size
    keeps = (Kept("dropout_mask", elements),) if ctx.dropout.hidden > 0 else ()
    return stream(name, ctx, 3 * elements, 2.5 * elements, keeps=keeps)


def _kept(model: ModelSpec, ctx: Context, *, layer_input: bool, width: float) -> tuple[Kept, ...]:
    elements = ctx.tokens * model.hidden_size / ctx.residual_shards
    per_token = 8.0 if model.norm == "layernorm" else 4.0
    # nanotron and torchtitan keep the gathered output that the next matmul reads; Megatron gathers it again.
    # torch.compile recomputes point-wise results from the matmul outputs it keeps (min-cut partitioner).
    output = ctx.tokens * model.hidden_size if ctx.keeps_gathered else elements
    drops_input, drops_output = DROPS_XLA if ctx.kept_tensors == "xla" else DROPS
    compiled = ctx.compiled and ctx.kept_tensors == "torchtitan"
    return (
        Kept("norm_input", ctx.width * elements, frozenset() if layer_input else drops_input, layer_input=layer_input),
        Kept("norm_output", 0.0 if compiled else width * output, drops_output),
        Kept("norm_statistics", per_token * ctx.sequence_tokens, drops_output - LAYERNORM),
    )


PER_OP = frozenset({"per_op"})
DROPS = (PER_OP, LAYERNORM | PER_OP)
DROPS_XLA = (frozenset({"mlp"}), LAYERNORM | {"core_attn", "mlp"})
"""XLA's policies name the matmuls to keep: elementwise results and attention are recomputed by any of them, and a
residual sum with the feed-forward behind it."""
