"""Norms and residual additions: the sequence-parallel parts of a layer."""

from __future__ import annotations

from windtunnel.job.model import ModelSpec
from windtunnel.ops.context import Context
from windtunnel.ops.linear import stream
from windtunnel.ops.op import Kept, Op

LAYERNORM = frozenset({"layernorm"})


def norm(model: ModelSpec, ctx: Context, name: str, *, layer_input: bool = False) -> tuple[Op, ...]:
    """Forward reads x and writes y; backward reads dy and x, writes dx, and half a pass of parameter gradients."""
    elements = ctx.sequence_tokens * model.hidden_size
    keeps = _kept(model, ctx, layer_input=layer_input)
    return stream(name, ctx, 2 * elements, 3.5 * elements, modules=LAYERNORM, keeps=keeps)


def residual(model: ModelSpec, ctx: Context, name: str) -> tuple[Op, ...]:
    """Bias, dropout and addition: reads branch and residual, writes the sum; backward passes the gradient on twice."""
    elements = ctx.sequence_tokens * model.hidden_size
    keeps = (Kept("dropout_mask", elements),) if ctx.dropout.hidden > 0 else ()
    return stream(name, ctx, 3 * elements, 2.5 * elements, keeps=keeps)


def _kept(model: ModelSpec, ctx: Context, *, layer_input: bool) -> tuple[Kept, ...]:
    elements = ctx.sequence_tokens * model.hidden_size
    per_token = 8.0 if model.norm == "layernorm" else 4.0
    # nanotron and torchtitan keep the gathered output that the next matmul reads; Megatron gathers it again.
    gathered = ctx.kept_tensors in ("nanotron", "torchtitan")
    output = ctx.tokens * model.hidden_size if gathered else elements
    return (
        Kept("norm_input", ctx.width * elements, frozenset() if layer_input else PER_OP, layer_input=layer_input),
        Kept("norm_output", ctx.width * output, LAYERNORM | PER_OP),
        Kept("norm_statistics", per_token * ctx.sequence_tokens, PER_OP),
    )


PER_OP = frozenset({"per_op"})
