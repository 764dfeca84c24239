"""Softmax attention with query, key and value heads (MHA, GQA, MQA), tensor and context parallel."""

from __future__ import annotations

from dataclasses import replace

from windtunnel.job.model import LayerSpec, ModelSpec
from windtunnel.ops.context import Context
from windtunnel.ops.linear import enter_region, leave_region, linear, stream
from windtunnel.ops.norm import DROPS_XLA, PER_OP, norm, residual
from windtunnel.ops.op import Attention, Collective, Kept, Op, Phase, RingExchange

CORE = frozenset({"core_attn"})


def attention(model: ModelSpec, layer: LayerSpec, ctx: Context) -> tuple[Op, ...]:
    """Norm, q/k/v projection, rotary embedding, core attention, output projection, residual."""
    h, d = model.hidden_size, layer.head_dim
    q = model.num_attention_heads * d / ctx.tp
    kv = max(layer.num_key_value_heads, ctx.tp) * d / ctx.tp
    gate = q if model.variant.attention_gate else 0.0
    values = 0.0 if model.variant.key_is_value and layer.window is None else kv
    projected = q + gate + kv + values
    return (
        *norm(model, ctx, "attention_norm", layer_input=True),
        *enter_region("attention_in", ctx, h, projected),
        *linear("qkv", ctx, ctx.tokens, projected, h, keeps=_kept_projection(model, ctx, q, kv, gate)),
        *_rotary(model, ctx, q, kv, keeps=_kept_qk_norms(model, layer, ctx, q, kv)),
        *core_attention(
            model,
            layer,
            ctx,
            heads=model.num_attention_heads / ctx.tp,
            qk_dim=d,
            v_dim=d,
            kv_width=2 * kv,
            keeps=(*_kept_core(model, ctx, q, kv), *_kept_gated(ctx, gate)),
        ),
        *linear("attention_out", ctx, ctx.tokens, h, q),
        *leave_region("attention_out", ctx, h, q),
        *residual(model, ctx, "attention_residual"),
    )


def _rotary(model: ModelSpec, ctx: Context, q: float, kv: float, *, keeps: tuple[Kept, ...]) -> tuple[Op, ...]:
    """Split the projection (read and write it once) and rotate q and k (read and write each once)."""
    rotated = 2 * (q + kv) if model.position == "rope" else 0.0
    split = q + 2 * kv
    extra = 2 * q * (model.qk_norm and model.variant.qk_norm_width != "weightless")
    forward, backward = ctx.tokens * (rotated + split + extra), ctx.tokens * (rotated + split + 2 * q + extra)
    return stream("rope", ctx, forward, backward, keeps=keeps)


def core_attention(
    model: ModelSpec,
    layer: LayerSpec,
    ctx: Context,
    *,
    heads: float,
    qk_dim: int,
    v_dim: int,
    kv_width: float,
    keeps: tuple[Kept, ...],
) -> tuple[Op, ...]:
    """The score and value products with whatever context parallelism moves round them.

    ``kv_width`` is the local key plus value width in elements a token.
    """
    modules = CORE

    def core(phase: Phase) -> Attention:
        return Attention(
            name="core_attention",
            phase=phase,
            batch=ctx.micro_batch_size,
            heads=heads,
            sequence=ctx.sequence_length,
            qk_dim=qk_dim,
            v_dim=v_dim,
            context=ctx.cp,
            balanced=ctx.context_parallel.load_balanced or ctx.context_parallel.kind == "ulysses",
            window=layer.window,
            fused=ctx.fused_attention,
            sinks=model.attention_sinks,
            fp8=ctx.fp8_attention,
            modules=modules,
            keeps=keeps if phase == "F" else (),
        )

    return (core("F"), core("B"), *context_exchange(ctx, heads * (qk_dim + v_dim), kv_width))


def context_exchange(ctx: Context, query_width: float, kv_width: float) -> tuple[Op, ...]:
    """What a context-parallel group moves: blocks round a ring, one gather, or heads against tokens."""
    if ctx.cp == 1:
        return ()
    kind = ctx.context_parallel.kind
    block = ctx.tokens * kv_width * ctx.width
    if kind == "ring":
        return (
            *_merges(ctx, query_width / 2, kv_width),
            RingExchange(name="kv_ring", phase="F", size=block, hops=ctx.cp - 1, modules=CORE),
            RingExchange(name="kv_ring", phase="B", size=2 * block, hops=ctx.cp - 1),
        )
    if kind == "all_gather":
        full = block * ctx.cp
        return (
            Collective(name="kv_gather", phase="F", collective="all_gather", group="cp", size=full, modules=CORE),
            Collective(name="kv_scatter", phase="B", collective="reduce_scatter", group="cp", size=full),
        )
    exchanged = ctx.tokens * (query_width + kv_width) * ctx.width
    ulysses = tuple(
        Collective(name="head_exchange", phase=phase, collective="all_to_all", group="cp", size=exchanged)
        for phase in ("F", "B")
    )
    rings = ctx.cp // max(1, ctx.context_parallel.ulysses_size)
    if kind == "ulysses" or rings <= 1:
        return ulysses
    return (
        *ulysses,
        RingExchange(name="kv_ring", phase="F", size=block, hops=rings - 1, modules=CORE),
        RingExchange(name="kv_ring", phase="B", size=2 * block, hops=rings - 1),
    )


def _merges(ctx: Context, out_width: float, kv_width: float) -> tuple[Op, ...]:
    """Combining what the hops of a ring give: the output so far is read and written in fp32 beside a bf16 block, in
    backward the gradients of q and of keys and values are read, added and written.

    Half of a balanced ring's hops, those of later blocks, touch only half of the queries. Source: NVIDIA/
    TransformerEngine pytorch attention with context parallelism, ``fwd_out_correction``.
    """
    hops, t = ctx.cp - 1, ctx.tokens
    out = 0.75 * hops * t * out_width
    gradients = hops * t * (0.75 * out_width + kv_width)
    return stream("ring_merge", ctx, out * (4 + ctx.width + 4) / ctx.width, 3 * gradients, modules=CORE)


def _kept_projection(model: ModelSpec, ctx: Context, q: float, kv: float, gate: float) -> tuple[Kept, ...]:
    """q, k, v in one mixed buffer; the rotated copies replace it where a fused kernel writes in place."""
    width, t = ctx.width, ctx.tokens
    kept = [Kept("qkv", width * t * (q + 2 * kv + gate))]
    if ctx.kept_tensors == "torchtitan" and not ctx.fused_qkv:
        # torchtitan's selective policy keeps every second matmul: wq and wv survive, wk does not.
        kept = [
            Kept("q", width * t * (q + gate)),
            Kept("k", width * t * kv, PER_OP),
            Kept("v", width * t * kv, PER_OP if ctx.compiled else frozenset()),
        ]
    rotates_into_copy = model.position == "rope" and (
        ctx.kept_tensors == "nanotron" or (ctx.kept_tensors == "megatron" and (ctx.cp > 1 or not ctx.fused_attention))
    )
    if rotates_into_copy:
        kept.append(Kept("rotated_qk", width * t * (q + kv), PER_OP))
    return tuple(kept)


def _kept_qk_norms(model: ModelSpec, layer: LayerSpec, ctx: Context, q: float, kv: float) -> tuple[Kept, ...]:
    """q and k as their norms read them, which the core's copies do not replace, and fp32 statistics of each row normed.

    A policy that saves every second matmul, and XLA's, keep one of the two copies; torch.compile computes one from the
    other.
    """
    if not model.qk_norm or (ctx.compiled and ctx.kept_tensors == "torchtitan"):
        return ()
    per_row = 8.0 if model.norm == "layernorm" else 4.0
    rows = 2.0 if model.variant.qk_norm_width == "full" else (q + kv) / layer.head_dim
    drops = DROPS_XLA[0] | CORE if ctx.kept_tensors == "xla" else PER_OP
    inputs = Kept("qk_norm_inputs", ctx.width * ctx.tokens * (q + kv), drops)
    return (inputs, Kept("qk_norm_statistics", per_row * ctx.tokens * rows, drops))


def _kept_gated(ctx: Context, gate: float) -> tuple[Kept, ...]:
    """The gated output, which the output projection reads; torch.compile makes it from the one that the core keeps."""
    made_again = ctx.compiled and ctx.kept_tensors == "torchtitan"
    return (Kept("gated_out", ctx.saved_width * ctx.tokens * gate, PER_OP),) if gate and not made_again else ()


def _kept_core(model: ModelSpec, ctx: Context, q: float, kv: float) -> tuple[Kept, ...]:
    return kept_core(ctx, heads=model.num_attention_heads / ctx.tp, out_width=q, expanded=2 * (q - kv))


def kept_core(ctx: Context, *, heads: float, out_width: float, expanded: float = 0.0) -> tuple[Kept, ...]:
    """Attention output with its log-sum-exp, or the scores of an unfused core.

    Unfused: probabilities in the activation's width, with dropout one mask byte and the dropped probabilities more; the
    local spec expands k and v to all query heads and, where its kernel does not apply, keeps an fp32 softmax too
    (executed, `saved_tensors`).
    """
    # A quantized output projection keeps its own copy of what the core keeps in high precision.
    copies = ctx.width + (ctx.saved_width if ctx.saved_width != ctx.width else 0.0)
    out = Kept("attention_out", copies * ctx.tokens * out_width, CORE if ctx.kept_tensors == "xla" else frozenset())
    if ctx.kept_tensors == "nanotron" and ctx.micro_batch_size > 1:
        # The output comes batch first and is copied for the sequence-first projection; one sequence needs no copy.
        out = replace(out, bytes=out.bytes + ctx.width * ctx.tokens * out_width)
    if ctx.fused_attention:
        return (out, Kept("log_sum_exp", 4 * ctx.tokens * heads, CORE))
    scores = ctx.micro_batch_size * heads * ctx.sequence_length**2 / ctx.cp
    per_score = ctx.width if not ctx.local_spec or _fuses_softmax(ctx, heads) else 4.0 + ctx.width
    if ctx.dropout.attention > 0:
        per_score += 1 + ctx.width
    kept = [out, Kept("scores", per_score * scores, CORE)]
    if ctx.local_spec and expanded > 0:
        kept.append(Kept("expanded_kv", ctx.width * ctx.tokens * expanded, CORE))
    return tuple(kept)


def _fuses_softmax(ctx: Context, heads: float) -> bool:
    """Whether Megatron-core's masked softmax kernel takes the scores (fusions/fused_softmax.py)."""
    s = ctx.sequence_length
    return ctx.fused_kernels and 16 < s <= 4096 and s % 4 == 0 and ctx.micro_batch_size * heads % 4 == 0
