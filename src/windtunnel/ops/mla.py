"""Multi-head latent attention: low-rank query and key-value paths, executed un-absorbed as training does."""

from __future__ import annotations

from windtunnel.job.model import MLA, LayerSpec, ModelSpec
from windtunnel.ops.attention import core_attention, kept_core
from windtunnel.ops.context import Context
from windtunnel.ops.linear import enter_region, leave_region, linear, stream
from windtunnel.ops.norm import norm, residual
from windtunnel.ops.op import Kept, Op

UP = frozenset({"mla_up_proj"})


def latent_attention(model: ModelSpec, layer: LayerSpec, ctx: Context) -> tuple[Op, ...]:
    """Down-projections run on the sequence shard and are replicated over tp; up-projections split by heads."""
    mla = model.mla
    assert mla is not None
    h, heads = model.hidden_size, model.num_attention_heads / ctx.tp
    qk, v = heads * mla.qk_head_dim, heads * mla.v_head_dim
    query, up = mla.q_lora_rank or h, heads * (mla.qk_nope_head_dim + mla.v_head_dim)
    latent = (mla.q_lora_rank or 0) + mla.kv_lora_rank + mla.qk_rope_head_dim
    return (
        *norm(model, ctx, "attention_norm", layer_input=True),
        *_query_down(model, mla, ctx),
        *linear("kv_down", ctx, ctx.sequence_tokens, mla.kv_lora_rank + mla.qk_rope_head_dim, h),
        *stream("latent_norms", ctx, *_latent_passes(mla, ctx), keeps=_kept_latents(mla, ctx)),
        *enter_region("latents", ctx, latent, (qk * query + up * mla.kv_lora_rank) / latent),
        *linear("q_up", ctx, ctx.tokens, qk, query, modules=UP),
        *linear("kv_up", ctx, ctx.tokens, up, mla.kv_lora_rank, modules=UP),
        *stream(
            "rope",
            ctx,
            ctx.tokens * (2 * qk + qk + v),
            ctx.tokens * (2 * qk + 3 * qk + v),
            modules=UP,
            keeps=_kept_heads(ctx, qk, v, heads * mla.qk_nope_head_dim),
        ),
        *_indexer(model, mla, ctx),
        *core_attention(
            model,
            layer,
            ctx,
            heads=heads,
            qk_dim=mla.qk_head_dim,
            v_dim=mla.v_head_dim,
            kv_width=qk + v,
            keeps=kept_core(ctx, heads=heads, out_width=v),
        ),
        *linear("attention_out", ctx, ctx.tokens, h, v),
        *leave_region("attention_out", ctx, h, v),
        *residual(model, ctx, "attention_residual"),
    )


def _query_down(model: ModelSpec, mla: MLA, ctx: Context) -> tuple[Op, ...]:
    if mla.q_lora_rank is None:
        return ()
    return linear("q_down", ctx, ctx.sequence_tokens, mla.q_lora_rank, model.hidden_size)


def _latent_passes(mla: MLA, ctx: Context) -> tuple[float, float]:
    elements = ctx.sequence_tokens * ((mla.q_lora_rank or 0) + mla.kv_lora_rank)
    return 2 * elements, 3.5 * elements


def _kept_latents(mla: MLA, ctx: Context) -> tuple[Kept, ...]:
    """Latents before and after their norms, full sequence on every tp rank, and an fp32 statistic a norm (executed)."""
    width = 2 * (mla.q_lora_rank or 0) + 2 * mla.kv_lora_rank + mla.qk_rope_head_dim
    norms = 1 if mla.q_lora_rank is None else 2
    return (Kept("latents", ctx.width * ctx.tokens * width), Kept("latent_statistics", 4 * ctx.tokens * norms))


def _kept_heads(ctx: Context, qk: float, v: float, nope: float) -> tuple[Kept, ...]:
    size = ctx.width * ctx.tokens
    kept = [Kept("q", size * qk, UP), Kept("k", size * qk, UP), Kept("v", size * v, UP)]
    if ctx.kept_tensors == "torchtitan":
        # The up-projection stays alive through the view of v (executed on CPU).
        kept[2] = Kept("kv_up", size * (nope + v), UP)
    return tuple(kept)


def _indexer(model: ModelSpec, mla: MLA, ctx: Context) -> tuple[Op, ...]:
    """Projections of the lightning indexer; its fp8 scores are small beside the dense core that training still runs."""
    indexer = model.variant.indexer
    if indexer is None:
        return ()
    width = indexer.num_heads * indexer.head_dim
    return (
        *linear("indexer_q", ctx, ctx.tokens, width, mla.q_lora_rank or model.hidden_size),
        *linear("indexer_k", ctx, ctx.tokens, indexer.head_dim + indexer.num_heads, model.hidden_size),
    )
