"""Weight shapes: the one place that says which parameters a layer has and how parallel ranks divide them.

Every matrix is written rows × cols = outputs × inputs, every vector n × 1. Shapes are those of the released modelling
code (Hugging Face transformers 5.24); the division over ranks is Megatron-core's: column-parallel projections divide
their rows and biases, row-parallel ones their columns and keep the bias whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from windtunnel.job.model import MLA, LayerSpec, LinearAttention, ModelSpec, MoE

Shard = Literal["tp", "replicated", "expert", "vocab"]
Module = Literal[
    "norm", "attention", "mla", "linear_attention", "mlp", "router", "experts", "shared_experts", "embedding", "head",
    "mtp", "position",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Weight:
    """A matrix of rows × cols, ``copies`` times (one per expert).

    ``shard``: ``"tp"`` divided over tp; ``"vocab"`` the same, after padding; ``"expert"`` copies divided over ep and
    width over etp; ``"replicated"`` whole on every rank. ``heads`` counts the key or value heads a projection yields:
    a rank keeps at least one. ``whole_width`` marks expert vectors that etp does not divide.
    """

    name: str
    rows: int
    cols: int
    shard: Shard
    module: Module
    copies: int = 1
    heads: int | None = None
    whole_width: bool = False

    @property
    def count(self) -> int:
        """Parameters of all copies."""
        return self.rows * self.cols * self.copies


Weights = tuple[Weight, ...]


def count(weights: Iterable[Weight]) -> int:
    """Parameters of all weights together, before any division over ranks."""
    return sum(weight.count for weight in weights)


def local_count(weight: Weight, tp: int = 1, ep: int = 1, etp: int = 1) -> float:
    """Parameters one rank holds; an int wherever the degrees divide evenly.

    With fewer key-value heads than tp each rank keeps one head: max(heads, tp) / tp heads of count / heads parameters
    (Megatron-core, attention.py, num_query_groups < tp).
    """
    if weight.shard == "replicated":
        return weight.count
    if weight.shard == "expert":
        return _divide(weight.count, ep * (1 if weight.whole_width else etp))
    if weight.heads is not None and weight.heads < tp:
        return _divide(weight.count, weight.heads)
    return _divide(weight.count, tp)


def _divide(number: int, by: int) -> float:
    return number // by if number % by == 0 else number / by


@lru_cache(maxsize=4096)
def layer_weights(model: ModelSpec, layer: LayerSpec) -> Weights:
    """All parameters of one layer: norms, sequence mixer, feed-forward."""
    return (*_layer_norms(model, layer), *_mixer(model, layer), *_feed_forward(model, layer))


@lru_cache(maxsize=1024)
def embedding_weights(model: ModelSpec, vocab: int | None = None) -> Weights:
    """Token embedding of ``vocab`` rows (default: unpadded) and learned positions, where their number is known."""
    h = model.hidden_size
    token = Weight("embedding", vocab or model.vocab_size, h, "vocab", "embedding")
    if model.position != "learned" or not model.max_position_embeddings:
        return (token,)
    return (token, Weight("positions", model.max_position_embeddings, h, "replicated", "position"))


@lru_cache(maxsize=1024)
def head_weights(model: ModelSpec, vocab: int | None = None, *, own_copy: bool = False) -> Weights:
    """The output projection, ``vocab`` × hidden_size.

    A tied head adds no parameter, hence nothing; ``own_copy`` asks for it nevertheless: with pp > 1 the last stage
    holds the embedding a second time.
    """
    if model.tie_word_embeddings and not own_copy:
        return ()
    return (Weight("head", vocab or model.vocab_size, model.hidden_size, "vocab", "head"),)


@lru_cache(maxsize=1024)
def final_norm_weights(model: ModelSpec) -> Weights:
    """The norm between the last layer and the head."""
    return (_norm(model, "final_norm", model.hidden_size),)


@lru_cache(maxsize=1024)
def mtp_weights(model: ModelSpec) -> Weights:
    """One multi-token-prediction depth: norms of both inputs, their 2h → h projection, a layer, a closing norm.

    Source: DeepSeek-V3 report, section 2.2; Megatron-core, multi_token_prediction.py (enorm, hnorm, eh_proj, layer and
    final norm). Embedding and head are shared with the model.
    """
    h = model.hidden_size
    norms = [_norm(model, name, h, "mtp") for name in ("mtp_embedding_norm", "mtp_hidden_norm", "mtp_final_norm")]
    projection = Weight("mtp_projection", h, 2 * h, "tp", "mtp")
    return (*norms, projection, *layer_weights(model, model.mtp_layer))


@lru_cache(maxsize=1024)
def total_parameters(model: ModelSpec) -> int:
    """Parameters of the whole model: unpadded vocabulary, a tied head once, MTP excluded."""
    ends = (*embedding_weights(model), *head_weights(model), *final_norm_weights(model))
    return count(ends) + sum(n * count(layer_weights(model, layer)) for layer, n in Counter(model.layers).items())


@lru_cache(maxsize=1024)
def active_parameters(model: ModelSpec, *, embedding: bool, head: bool) -> int:
    """Parameters one token uses: k of E routed experts; input embedding and head only where asked for.

    A tied matrix counts once when either end is asked for. Published counts follow different conventions: gpt-oss
    leaves the embedding out, Mixtral counts both.
    """
    ends = [*final_norm_weights(model)]
    if embedding:
        ends += embedding_weights(model)
    if head:
        ends += head_weights(model, own_copy=not embedding)
    layers = Counter(model.layers).items()
    return count(ends) + sum(n * _active(model, layer_weights(model, layer)) for layer, n in layers)


def _active(model: ModelSpec, weights: Weights) -> int:
    chosen = model.moe.num_experts_per_token if model.moe else 0
    return count(replace(weight, copies=chosen) if weight.shard == "expert" else weight for weight in weights)


def _norm(model: ModelSpec, name: str, width: int, module: Module = "norm") -> Weight:
    """RMSNorm has a scale, LayerNorm a scale and a shift."""
    return Weight(name, width * (2 if model.norm == "layernorm" else 1), 1, "replicated", module)


def _layer_norms(model: ModelSpec, layer: LayerSpec) -> Weights:
    variant = model.variant
    parts = (layer.mixer != "none") + (layer.feed_forward != "none")
    number = parts if variant.norms_per_layer is None else variant.norms_per_layer
    norms = [_norm(model, f"norm_{index}", model.hidden_size) for index in range(number)]
    if variant.extra_parameters_per_layer:
        norms.append(Weight("extra", variant.extra_parameters_per_layer, 1, "replicated", "norm"))
    return tuple(norms)


def _mixer(model: ModelSpec, layer: LayerSpec) -> Weights:
    if layer.mixer == "linear_attention" and model.linear_attention is not None:
        return _LINEAR[model.linear_attention.kind](model, model.linear_attention)
    if layer.mixer != "attention":
        return ()
    return _attention(model, layer) if model.mla is None else _mla(model, model.mla)


def _attention(model: ModelSpec, layer: LayerSpec) -> Weights:
    """Grouped-query attention; an output gate doubles the query rows."""
    h, variant = model.hidden_size, model.variant
    query, key = model.num_attention_heads * layer.head_dim, layer.num_key_value_heads * layer.head_dim
    rows = {"query": query * (2 if variant.attention_gate else 1), "key": key, "value": key}
    if variant.key_is_value and layer.window is None:
        del rows["value"]
    heads = {"key": layer.num_key_value_heads, "value": layer.num_key_value_heads}
    weights = [Weight(name, n, h, "tp", "attention", heads=heads.get(name)) for name, n in rows.items()]
    if model.attention_bias:
        weights += [Weight(f"{name}_bias", n, 1, "tp", "attention", heads=heads.get(name)) for name, n in rows.items()]
    weights.append(Weight("attention_output", h, query, "tp", "attention"))
    if _has_output_bias(model):
        weights.append(Weight("attention_output_bias", h, 1, "replicated", "attention"))
    if model.attention_sinks:
        weights.append(Weight("sinks", model.num_attention_heads, 1, "tp", "attention"))
    return (*weights, *_qk_norms(model, query, key, layer.head_dim))


def _has_output_bias(model: ModelSpec) -> bool:
    bias = model.variant.attention_output_bias
    return model.attention_bias if bias is None else bias


def _qk_norms(model: ModelSpec, query: int, key: int, head_dim: int) -> Weights:
    if not model.qk_norm or model.variant.qk_norm_width == "weightless":
        return ()
    if model.variant.qk_norm_width == "head":
        query = key = head_dim
    return (_norm(model, "query_norm", query, "attention"), _norm(model, "key_norm", key, "attention"))


def _mla(model: ModelSpec, mla: MLA) -> Weights:
    """Multi-head latent attention (DeepSeek-V2 report, section 2.1): latents replicated over tp, heads divided."""
    h, heads, kv = model.hidden_size, model.num_attention_heads, mla.kv_lora_rank
    weights = [
        *_mla_query(model, mla),
        Weight("kv_down", kv + mla.qk_rope_head_dim, h, "replicated", "mla"),
        _norm(model, "kv_norm", kv, "mla"),
        Weight("kv_up", heads * (mla.qk_nope_head_dim + mla.v_head_dim), kv, "tp", "mla"),
        Weight("attention_output", h, heads * mla.v_head_dim, "tp", "mla"),
    ]
    if model.attention_bias:
        weights.append(Weight("kv_down_bias", kv + mla.qk_rope_head_dim, 1, "replicated", "mla"))
    if _has_output_bias(model):
        weights.append(Weight("attention_output_bias", h, 1, "replicated", "mla"))
    return (*weights, *_indexer(model, mla))


def _mla_query(model: ModelSpec, mla: MLA) -> Weights:
    h, query, rank = model.hidden_size, model.num_attention_heads * mla.qk_head_dim, mla.q_lora_rank
    if rank is None:
        return (Weight("query", query, h, "tp", "mla"),)
    bias = (Weight("query_down_bias", rank, 1, "replicated", "mla"),) if model.attention_bias else ()
    down = Weight("query_down", rank, h, "replicated", "mla")
    return (down, *bias, _norm(model, "query_norm", rank, "mla"), Weight("query_up", query, rank, "tp", "mla"))


def _indexer(model: ModelSpec, mla: MLA) -> Weights:
    """The lightning indexer of DeepSeek-V3.2: small, and whole on every tp rank."""
    indexer = model.variant.indexer
    if indexer is None:
        return ()
    h, heads, width = model.hidden_size, indexer.num_heads, indexer.head_dim
    return (
        Weight("indexer_query", heads * width, mla.q_lora_rank or h, "replicated", "mla"),
        Weight("indexer_key", width, h, "replicated", "mla"),
        Weight("indexer_key_norm", 2 * width, 1, "replicated", "mla"),
        Weight("indexer_head_weights", heads, h, "replicated", "mla"),
    )


def _linear(name: str, rows: int, cols: int = 1, shard: Shard = "tp") -> Weight:
    return Weight(name, rows, cols, shard, "linear_attention")


def _mamba2(model: ModelSpec, mixer: LinearAttention) -> Weights:
    """Mamba-2: one projection to z, x, B, C and dt, a biased causal convolution over x, B, C, a gated norm."""
    h, inner, key, heads = model.hidden_size, mixer.inner_size, mixer.key_size, mixer.num_heads
    return (
        _linear("input", 2 * inner + 2 * key + heads, h),
        _linear("convolution", inner + 2 * key, mixer.conv_width),
        _linear("convolution_bias", inner + 2 * key),
        *(_linear(name, heads) for name in ("dt_bias", "a_log", "d_skip")),
        _linear("gate_norm", inner),
        _linear("linear_attention_output", h, inner),
    )


def _gated_deltanet(model: ModelSpec, mixer: LinearAttention) -> Weights:
    """Gated DeltaNet (Qwen3-Next): q, k, v, z and two scalars a head, a causal convolution over q, k, v."""
    h, inner, key, heads = model.hidden_size, mixer.inner_size, mixer.key_size, mixer.num_heads
    return (
        _linear("input", 2 * key + 2 * inner + 2 * heads, h),
        _linear("convolution", 2 * key + inner, mixer.conv_width),
        *(_linear(name, heads) for name in ("dt_bias", "a_log")),
        _linear("gate_norm", mixer.head_dim, shard="replicated"),
        _linear("linear_attention_output", h, inner),
    )


def _lightning(model: ModelSpec, mixer: LinearAttention) -> Weights:
    """Lightning attention (MiniMax-01): q, k, v and an output gate, a norm over the inner width."""
    h, inner, key = model.hidden_size, mixer.inner_size, mixer.key_size
    return (
        _linear("input", 2 * key + 2 * inner, h),
        _linear("gate_norm", inner),
        _linear("linear_attention_output", h, inner),
    )


_LINEAR = {"mamba2": _mamba2, "gated_deltanet": _gated_deltanet, "lightning": _lightning}


def _feed_forward(model: ModelSpec, layer: LayerSpec) -> Weights:
    if layer.feed_forward == "moe" and model.moe is not None:
        return _moe(model, model.moe)
    if layer.feed_forward == "dense":
        return _mlp(model, layer.intermediate_size, "mlp")
    return ()


def _mlp(model: ModelSpec, width: int, module: Module) -> Weights:
    """Two matrices; in gated kinds the first holds gate and up projection, 2 · width rows."""
    first = width * (2 if model.gated else 1)
    weights = (
        Weight("up", first, model.hidden_size, "tp", module),
        Weight("down", model.hidden_size, width, "tp", module),
    )
    if not model.mlp_bias:
        return weights
    bias = Weight("down_bias", model.hidden_size, 1, "replicated", module)
    return (*weights, Weight("up_bias", first, 1, "tp", module), bias)


def _moe(model: ModelSpec, moe: MoE) -> Weights:
    """Router, E routed experts, shared experts as one feed-forward of their total width."""
    h = model.hidden_size
    router = [Weight("router", moe.num_experts, h, "replicated", "router")]
    if moe.router_bias:
        router.append(Weight("router_bias", moe.num_experts, 1, "replicated", "router"))
    expert = _mlp(model, moe.moe_intermediate_size, "experts")
    experts = [
        replace(weight, shard="expert", copies=moe.num_experts, whole_width=weight.shard == "replicated")
        for weight in expert
    ]
    return (*router, *experts, *_shared_experts(model, moe))


def _shared_experts(model: ModelSpec, moe: MoE) -> Weights:
    if not moe.shared_expert_intermediate_size:
        return ()
    shared = _mlp(model, moe.shared_expert_intermediate_size, "shared_experts")
    if not model.variant.shared_expert_gate:
        return shared
    return (*shared, Weight("shared_expert_gate", 1, model.hidden_size, "replicated", "shared_experts"))
