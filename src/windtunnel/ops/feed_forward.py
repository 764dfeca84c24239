"""Dense feed-forward: gated (three matrices) or plain (two)."""

from __future__ import annotations

from windtunnel.job.model import ModelSpec
from windtunnel.ops.context import Context
from windtunnel.ops.linear import enter_region, leave_region, linear, stream
from windtunnel.ops.norm import norm, residual
from windtunnel.ops.op import Kept, Op

MLP = frozenset({"mlp"})


def feed_forward(
    model: ModelSpec, intermediate_size: int, ctx: Context, *, layer_input: bool = False
) -> tuple[Op, ...]:
    """Norm, up (and gate) projection, activation, down projection, residual."""
    h, width = model.hidden_size, intermediate_size / ctx.tp
    return (
        *norm(model, ctx, "mlp_norm", layer_input=layer_input),
        *enter_region("mlp_in", ctx, h, up_width(model, width), modules=MLP),
        *matrices(model, width, ctx, modules=MLP),
        *leave_region("mlp_out", ctx, h, width, modules=MLP),
        *residual(model, ctx, "mlp_residual"),
    )


def up_width(model: ModelSpec, width: float) -> float:
    """Columns of the first product: a gate beside the value where there is one."""
    return (2 if model.gated else 1) * width


def matrices(
    model: ModelSpec, width: float, ctx: Context, *, modules: frozenset[str], prefix: str = "mlp"
) -> tuple[Op, ...]:
    """The matmuls and activation of a feed-forward of local ``width``."""
    t, h = ctx.tokens, model.hidden_size
    forward, backward = (3, 5) if model.gated else (2, 3)
    return (
        *linear(f"{prefix}_up", ctx, t, up_width(model, width), h, modules=modules),
        *stream(
            f"{prefix}_activation",
            ctx,
            forward * t * width,
            backward * t * width,
            modules=modules,
            keeps=kept_activation(ctx, t, width, gated=model.gated, modules=modules),
        ),
        *linear(f"{prefix}_down", ctx, t, h, width, modules=modules, keeps=_kept_down(ctx, t * h, gated=model.gated)),
    )


def _kept_down(ctx: Context, elements: float, *, gated: bool) -> tuple[Kept, ...]:
    """Per-op recompute saves the result of the down projection where that is an odd product of the layer, the third of
    a gated feed-forward (executed); torch.compile drops it, for only a sum reads it."""
    if ctx.kept_tensors != "torchtitan" or ctx.compiled or not gated:
        return ()
    return (Kept("mlp_out", ctx.width * elements, only_under="per_op"),)


def kept_activation(
    ctx: Context, rows: float, width: float, *, gated: bool, modules: frozenset[str]
) -> tuple[Kept, ...]:
    """Input and output of the activation; eager gated kernels also keep act(gate), one more tensor (executed)."""
    size = ctx.width * rows * width
    eager = gated and (ctx.kept_tensors in ("torchtitan", "nanotron") or ctx.local_spec)
    if ctx.kept_tensors == "torchtitan":
        # Selective per-op recompute keeps w1's output and drops the others.
        kept = [Kept("gate", size, modules)]
        kept += [Kept("up", size, modules | {"per_op"})] if gated else []
    else:
        kept = [Kept("up", (2 if gated else 1) * ctx.activation_input * rows * width, modules)]
    if ctx.kept_tensors == "torchtitan" and ctx.compiled:
        return tuple(kept)  # the partitioner recomputes point-wise results
    if eager:
        kept.append(Kept("activated_gate", size, modules | {"per_op"}))
    drops = modules | {"per_op"} | ({"core_attn"} if ctx.kept_tensors == "xla" else set())
    kept.append(Kept("product", ctx.saved_width * rows * width, drops))
    return tuple(kept)
