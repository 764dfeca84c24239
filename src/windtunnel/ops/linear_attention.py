"""Linear-attention mixers: Mamba-2, gated DeltaNet and lightning attention, in their chunked training form."""

from __future__ import annotations

from windtunnel.job.model import LinearAttention, ModelSpec
from windtunnel.ops.context import Context
from windtunnel.ops.linear import enter_region, leave_region, linear, stream
from windtunnel.ops.norm import norm, residual
from windtunnel.ops.op import Kept, Op, Scan

CHUNK = 128
"""Tokens of one chunk of the scan: the block length of the published Mamba-2 and DeltaNet kernels."""


def linear_attention(model: ModelSpec, ctx: Context) -> tuple[Op, ...]:
    """Norm, input projection, short convolution, chunked scan, gated norm, output projection, residual."""
    spec = model.linear_attention
    assert spec is not None
    h, inner = model.hidden_size, spec.inner_size / ctx.tp
    projected, convolved = projection_width(spec) / ctx.tp, convolution_width(spec) / ctx.tp
    t = ctx.tokens
    return (
        *norm(model, ctx, "mixer_norm", layer_input=True),
        *enter_region("mixer_in", ctx, h, projected),
        *linear("mixer_in", ctx, t, projected, h, keeps=(Kept("mixer_projection", ctx.width * t * projected),)),
        *stream("convolution", ctx, 2 * t * convolved, 3 * t * convolved, keeps=_kept_convolution(ctx, t, convolved)),
        *_scan(spec, ctx),
        *stream("gated_norm", ctx, 3 * t * inner, 5 * t * inner, keeps=(Kept("gated", ctx.width * t * inner),)),
        *linear("mixer_out", ctx, t, h, inner),
        *leave_region("mixer_out", ctx, h, inner),
        *residual(model, ctx, "mixer_residual"),
    )


def projection_width(spec: LinearAttention) -> int:
    """Output width of the input projection: gate, values, keys and queries (or B and C), and per-head rates."""
    if spec.kind == "lightning":
        return 2 * spec.inner_size + 2 * spec.key_size
    rates = spec.num_heads if spec.kind == "mamba2" else 2 * spec.num_heads
    return 2 * spec.inner_size + 2 * spec.key_size + rates


def convolution_width(spec: LinearAttention) -> int:
    return 0 if spec.kind == "lightning" else spec.inner_size + 2 * spec.key_size


def scan_flops_per_token(spec: LinearAttention) -> float:
    """Chunked linear attention: scores and values inside a chunk (causal half), state update and state read."""
    inside = CHUNK * (spec.state_dim + spec.head_dim)
    return spec.num_heads * (inside + 4 * spec.state_dim * spec.head_dim)


def _scan(spec: LinearAttention, ctx: Context) -> tuple[Op, ...]:
    flops = ctx.tokens * scan_flops_per_token(spec) / ctx.tp
    moved = ctx.tokens * (2 * spec.inner_size + 2 * spec.key_size) / ctx.tp * ctx.width
    states = ctx.tokens / CHUNK * spec.num_heads * spec.state_dim * spec.head_dim * 4 / ctx.tp
    return (
        Scan(name="scan", phase="F", scan_flops=flops, bytes_moved=moved + states, keeps=(Kept("states", states),)),
        Scan(name="scan", phase="B", scan_flops=2 * flops, bytes_moved=2 * moved + 2 * states),
    )


def _kept_convolution(ctx: Context, tokens: float, convolved: float) -> tuple[Kept, ...]:
    return (Kept("convolution", ctx.width * tokens * convolved),)
