"""Mixture of experts: router, dispatch, permutation, grouped GEMMs, shared experts, combine."""

from __future__ import annotations

from math import ceil

from windtunnel.job.model import ModelSpec, MoE
from windtunnel.ops.context import Context
from windtunnel.ops.feed_forward import kept_activation, matrices, up_width
from windtunnel.ops.linear import casts, enter_region, leave_region, linear, stream
from windtunnel.ops.norm import PER_OP, norm, residual
from windtunnel.ops.op import Collective, ExpertExchange, GroupedGemm, Kept, Op, Phase, Stream

WHOLE = frozenset({"moe"})
ACTIVATION = frozenset({"moe", "moe_act"})
SHARED = frozenset({"moe", "shared_experts"})


def routed_rows(moe: MoE, ctx: Context) -> float:
    """Token copies the hottest rank's experts process for one micro-batch.

    Balanced: tokens · k spread over ep ranks that each collect from ep peers; expert tensor parallelism gathers etp
    sequence shards. A capacity factor fixes the rows; otherwise ``imbalance`` loads the hottest rank.
    """
    factor = ctx.moe.capacity_factor if ctx.moe.capacity_factor is not None else ctx.moe.imbalance
    shards = ctx.sp if ctx.tp > 1 else 1
    return ctx.tokens / shards * moe.num_experts_per_token * ctx.etp * factor


def mixture_of_experts(model: ModelSpec, ctx: Context, *, layer_input: bool = False) -> tuple[Op, ...]:
    """Norm, router, dispatch, experts, combine, shared expert, residual."""
    moe = model.moe
    assert moe is not None
    return (
        *norm(model, ctx, "mlp_norm", layer_input=layer_input, feeds_gemm=False),
        *_router(model, moe, ctx),
        *_exchange(model, moe, ctx),
        *_permutation(model, moe, ctx),
        *_experts(model, moe, ctx),
        *_shared(model, moe, ctx),
        *residual(model, ctx, "mlp_residual"),
    )


def _router(model: ModelSpec, moe: MoE, ctx: Context) -> tuple[Op, ...]:
    """A bf16 GEMM, then softmax, top-k, auxiliary loss and counts over fp32 scores of every token and expert."""
    scores = ctx.sequence_tokens * moe.num_experts * 4
    router = linear(
        "router", ctx, ctx.sequence_tokens, moe.num_experts, model.hidden_size, modules=WHOLE, compute="bf16"
    )
    return (
        *router,
        Stream(
            name="routing",
            phase="F",
            kind="router",
            bytes_moved=8 * scores,
            kernels=12,
            modules=WHOLE,
            keeps=_kept_routing(moe, ctx, scores),
        ),
        Stream(name="routing", phase="B", kind="router", bytes_moved=6 * scores, kernels=8),
    )


def _kept_routing(moe: MoE, ctx: Context, scores: float) -> tuple[Kept, ...]:
    """fp32 scores before and after the choice; eager torch keeps one, and of every copy of a token three int64 indices
    (its choice, its source, its place in the order of experts) and its weight in bf16 (executed)."""
    if ctx.kept_tensors != "torchtitan":
        return (Kept("router_scores", 2 * scores, WHOLE),)
    copies = ctx.sequence_tokens * moe.num_experts_per_token
    return (Kept("router_scores", scores, WHOLE), Kept("routing_indices", (3 * 8 + ctx.width) * copies, WHOLE))


def _exchange(model: ModelSpec, moe: MoE, ctx: Context) -> tuple[Op, ...]:
    """Dispatch and combine in each direction, and the gathers of expert tensor parallelism."""
    ops: list[Op] = []
    if ctx.ep > 1:
        ops += [_exchange_op(model, moe, ctx, name, phase) for phase in PHASES for name in ("dispatch", "combine")]
    if ctx.etp > 1:
        size = routed_rows(moe, ctx) * model.hidden_size * ctx.width
        ops += [
            Collective(name="etp_in", phase="F", collective="all_gather", group="etp", size=size, modules=WHOLE),
            Collective(name="etp_out", phase="F", collective="reduce_scatter", group="etp", size=size, modules=WHOLE),
            Collective(name="etp_out", phase="B", collective="all_gather", group="etp", size=size),
            Collective(name="etp_in", phase="B", collective="reduce_scatter", group="etp", size=size),
        ]
    return tuple(ops)


PHASES: tuple[Phase, ...] = ("F", "B")


def _exchange_op(model: ModelSpec, moe: MoE, ctx: Context, name: str, phase: Phase) -> ExpertExchange:
    return ExpertExchange(
        name=name,
        phase=phase,
        dispatcher=ctx.moe.dispatcher,
        tokens=ctx.sequence_tokens,
        row_bytes=model.hidden_size * ctx.width,
        experts_per_token=moe.num_experts_per_token,
        groups_per_token=moe.groups_per_token if (moe.num_groups or 1) > 1 else None,
        modules=WHOLE,
    )


def _permutation(model: ModelSpec, moe: MoE, ctx: Context) -> tuple[Op, ...]:
    """Permute and un-permute, in both directions, and what they keep."""
    forward, backward = _permuted_bytes(model, moe, ctx)
    elements = routed_rows(moe, ctx) * model.hidden_size
    rows = elements * ctx.width
    # An unfused un-permute that weighs rows by their probabilities keeps them.
    weighed = ctx.weighs_in_experts or ctx.moe.permute_fusion
    fused_permute = weighed or ctx.moe.dispatcher != "alltoall" or ctx.ep == 1
    kept = (
        Kept("dispatched_rows", 0.0 if fused_permute else rows, WHOLE, of="dispatcher"),
        Kept("expert_input", elements * ctx.saved_width, WHOLE | PER_OP),
        *_exchanged(ctx, rows, both=fused_permute),
    )
    fused = f"permute:{ctx.moe.dispatcher}"
    return (
        Stream(name=fused, phase="F", kind="permute", bytes_moved=forward, modules=WHOLE, keeps=kept),
        Stream(name=fused, phase="B", kind="permute", bytes_moved=backward),
    )


def _permuted_bytes(model: ModelSpec, moe: MoE, ctx: Context) -> tuple[float, float]:
    """Bytes that sorting tokens by expert and back moves, forward and backward.

    A fused permutation reads a token and writes its k copies, its reverse the other way round; an all-to-all with
    several local experts also sorts what arrives by expert. Indexing kernels of torch pass over every copy: forward
    gather, pad, un-pad, weigh (in fp32: three passes unless compiled) and scatter_add, backward the gradients of each.
    """
    k = moe.num_experts_per_token
    row = ctx.sequence_tokens * model.hidden_size * ctx.width
    if ctx.torch_routing:
        copies = k * row / ctx.width
        return (22 * copies, 24 * copies) if ctx.compiled else (38 * copies, 54 * copies)
    moved = 2 * (1 + k) * row
    if ctx.moe.dispatcher == "alltoall" and ctx.ep > 1 and moe.num_experts // ctx.ep > 1:
        moved += 4 * k * row
    return moved, moved


def _exchanged(ctx: Context, rows: float, *, both: bool) -> tuple[Kept, ...]:
    """Per-op recompute saves what an exchange delivered, there and back, rather than to exchange again (torchtitan
    distributed/activation_checkpoint.py: comm_ops); ``both``: nothing else keeps the rows sent there."""
    if ctx.kept_tensors != "torchtitan" or ctx.ep == 1:
        return ()
    back = Kept("combined_rows", rows, WHOLE, of="dispatcher", only_under="per_op")
    return (back, Kept("dispatched_rows", rows, WHOLE, of="dispatcher", only_under="per_op")) if both else (back,)


def _experts(model: ModelSpec, moe: MoE, ctx: Context) -> tuple[Op, ...]:
    h, width = model.hidden_size, moe.moe_intermediate_size / ctx.etp
    rows = routed_rows(moe, ctx)
    up = up_width(model, width)
    forward, backward = (3, 6) if model.gated else (2, 4)
    return (
        *_grouped("expert_up", moe, ctx, rows, up, h),
        *stream(
            "expert_activation",
            ctx,
            forward * rows * width,
            backward * rows * width,
            modules=ACTIVATION,
            keeps=kept_experts(model, ctx, rows, width),
        ),
        *_grouped("expert_down", moe, ctx, rows, h, width),
    )


def kept_experts(model: ModelSpec, ctx: Context, rows: float, width: float) -> tuple[Kept, ...]:
    """Input and output of the expert activation; ``moe_act`` recomputes the output from the input."""
    if ctx.kept_tensors == "torchtitan":
        # No product of a grouped GEMM is on the list that per-op recompute saves.
        dropped = WHOLE | PER_OP
        scattered = Kept("scatter_source", ctx.width * rows * model.hidden_size, dropped)
        return (*kept_activation(ctx, rows, width, gated=model.gated, modules=dropped), scattered)
    kept = (
        Kept("expert_up", (2 if model.gated else 1) * ctx.activation_input * rows * width, WHOLE),
        Kept("expert_product", ctx.saved_width * rows * width, ACTIVATION),
    )
    # Megatron-core fuses the weighing into gated activations and the squared ReLU alone (transformer/moe/experts.py).
    fused = model.gated or model.activation == "relu2"
    weighed = ctx.kept_tensors == "megatron" and ctx.weighs_in_experts and not fused
    return (*kept, Kept("expert_unweighed", ctx.width * rows * width, ACTIVATION)) if weighed else kept


def _grouped(name: str, moe: MoE, ctx: Context, rows: float, n: float, k: float) -> tuple[Op, ...]:
    """Local experts as one batch of equal GEMMs; their weight gradients accumulate in fp32 every micro-batch."""
    groups = max(1, moe.num_experts // ctx.ep)
    padded = ctx.moe.capacity_factor is None

    def gemm(phase: Phase, m: float, width: float, depth: float) -> GroupedGemm:
        return GroupedGemm(
            name=name,
            phase=phase,
            groups=groups,
            m=m,
            n=width,
            k=depth,
            compute=ctx.compute,
            accumulates_fp32=phase == "W",
            padded=padded,
            grouped=ctx.moe.grouped_gemm,
            modules=WHOLE if phase == "F" else frozenset(),
        )

    each = rows / groups
    return (
        gemm("F", each, n, k),
        gemm("B", each, k, n),
        gemm("W", n, k, each),
        *casts(name, ctx.compute, rows * k, rows * n, modules=WHOLE),
    )


def _shared(model: ModelSpec, moe: MoE, ctx: Context) -> tuple[Op, ...]:
    if not moe.shared_expert_intermediate_size:
        return ()
    h, width = model.hidden_size, moe.shared_expert_intermediate_size / ctx.tp
    return (
        *enter_region("shared_in", ctx, h, up_width(model, width), modules=SHARED),
        *matrices(model, width, ctx, modules=SHARED, prefix="shared_expert"),
        *leave_region("shared_out", ctx, h, width, modules=SHARED),
    )


def pad_rows(rows: float, multiple: int) -> float:
    """Rows of one expert after padding to the alignment of its recipe."""
    return ceil(rows / multiple) * multiple if rows > 0 else 0.0
