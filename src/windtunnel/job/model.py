"""The shape of a transformer: what a Hugging Face ``config.json`` says, in neutral terms."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

Activation = Literal["swiglu", "geglu", "gelu", "relu2", "relu"]
Norm = Literal["rmsnorm", "layernorm"]
Position = Literal["rope", "learned", "alibi", "none"]
Mixer = Literal["attention", "linear_attention", "none"]
FeedForward = Literal["dense", "moe", "none"]

GATED = frozenset({"swiglu", "geglu"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingWindow:
    """Which layers see only ``size`` tokens: one in ``every``, or ``local_per_global`` local ones before a global."""

    size: int
    every: int | None = None
    local_per_global: int | None = None

    def covers(self, layer: int) -> bool:
        if self.local_per_global is not None:
            return (layer + 1) % (self.local_per_global + 1) != 0
        return layer % (self.every or 1) == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MoE:
    """Mixture-of-experts sizes. ``shared_expert_intermediate_size`` is the total width of all shared experts.

    ``router_bias`` is a bias parameter of the router's linear layer (gpt-oss). The score-correction bias that balances
    DeepSeek-V3 is a buffer: neither counted nor trained by the optimizer.
    """

    num_experts: int
    num_experts_per_token: int
    moe_intermediate_size: int
    shared_expert_intermediate_size: int = 0
    num_dense_layers: int = 0
    layer_frequency: int = 1
    num_groups: int | None = None
    groups_per_token: int | None = None
    router_bias: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MLA:
    """Multi-head latent attention (DeepSeek-V2 and later)."""

    q_lora_rank: int | None
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int

    @property
    def qk_head_dim(self) -> int:
        return self.qk_nope_head_dim + self.qk_rope_head_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearAttention:
    """Sequence mixers of linear cost.

    mamba2: ``num_heads`` × ``head_dim`` is the inner width, ``state_dim`` the state size, ``num_groups`` B/C groups.
    gated_deltanet, lightning: ``num_heads`` value heads of ``head_dim``, ``num_groups`` key heads of ``state_dim``.
    """

    kind: Literal["mamba2", "gated_deltanet", "lightning"]
    pattern: str
    num_heads: int
    head_dim: int
    state_dim: int
    num_groups: int
    conv_width: int = 4

    @property
    def inner_size(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def key_size(self) -> int:
        return self.num_groups * self.state_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexer:
    """The lightning indexer of sparse latent attention (DeepSeek-V3.2, GLM-5)."""

    num_heads: int
    head_dim: int
    tokens_per_query: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSpec:
    """One layer as it is built; ``index`` −1 marks an MTP layer. Sizes of 0 mean that the part is absent."""

    mixer: Mixer
    feed_forward: FeedForward
    window: int | None = None
    num_key_value_heads: int = 0
    head_dim: int = 0
    intermediate_size: int = 0
    is_mtp: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelVariant:
    """Details of released families that no job file can spell; they come with a catalog model or ``config.json``."""

    attention_output_bias: bool | None = None
    """Bias of the attention output projection; None: as ``attention_bias``."""
    qk_norm_width: Literal["head", "full", "weightless"] = "head"
    norms_per_layer: int | None = None
    """Norms of width hidden_size in a layer; None: one before each part that exists."""
    attention_gate: bool = False
    """The query projection also yields an output gate of the same width (Qwen3-Next)."""
    shared_expert_gate: bool = False
    indexer: Indexer | None = None
    global_head_dim: int | None = None
    global_num_key_value_heads: int | None = None
    key_is_value: bool = False
    """Global attention layers reuse the key projection as value (Gemma 4)."""
    extra_parameters_per_layer: int = 0
    """Small vectors and scalars not named above, counted exactly and executed as nothing."""
    layers: tuple[LayerSpec, ...] | None = None
    """Heterogeneous layers, one entry a layer, where no pattern describes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """Layer pattern and sizes of a decoder-only language model.

    With ``mla``, ``num_key_value_heads`` equals the attention heads and ``head_dim`` is the query-key width of a head.
    ``mlp_bias`` covers routed and shared experts too.
    """

    name: str
    num_layers: int
    hidden_size: int
    vocab_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    activation: Activation = "swiglu"
    norm: Norm = "rmsnorm"
    position: Position = "rope"
    attention_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    attention_sinks: bool = False
    tie_word_embeddings: bool = False
    sliding_window: SlidingWindow | None = None
    moe: MoE | None = None
    mla: MLA | None = None
    num_mtp_layers: int = 0
    linear_attention: LinearAttention | None = None
    max_position_embeddings: int | None = None
    vocab_multiple: int | None = None
    variant: ModelVariant = ModelVariant()

    @property
    def gated(self) -> bool:
        """Gated activations (SwiGLU, GeGLU) have three matrices, plain ones two."""
        return self.activation in GATED

    @property
    def is_moe(self) -> bool:
        return _has_experts(self)

    @property
    def layers(self) -> tuple[LayerSpec, ...]:
        """The ``num_layers`` transformer layers in order, MTP layers not included."""
        return _layers(self)

    @property
    def mtp_layer(self) -> LayerSpec:
        """The layer an MTP depth repeats: a copy of the last attention layer with the last feed-forward kind."""
        return _mtp_layer(self)


@lru_cache(maxsize=256)
def _has_experts(model: ModelSpec) -> bool:
    return any(layer.feed_forward == "moe" for layer in model.layers)


@lru_cache(maxsize=256)
def _layers(model: ModelSpec) -> tuple[LayerSpec, ...]:
    if model.variant.layers is not None:
        return model.variant.layers
    if model.linear_attention is not None:
        symbols = model.linear_attention.pattern.replace("|", "")
        return tuple(_layer_of_symbol(model, symbol, index) for index, symbol in enumerate(symbols))
    return tuple(_layer(model, index, "attention", _feed_forward(model, index)) for index in range(model.num_layers))


def _feed_forward(model: ModelSpec, index: int) -> FeedForward:
    moe = model.moe
    if moe is None or index < moe.num_dense_layers:
        return "dense"
    # Megatron-core's moe_layer_freq and Llama 4's interleave step: the last layer of each group of n is the MoE one.
    return "moe" if (index - moe.num_dense_layers + 1) % moe.layer_frequency == 0 else "dense"


def _layer_of_symbol(model: ModelSpec, symbol: str, index: int) -> LayerSpec:
    """Two readings of a hybrid pattern: one module a layer when E or - occur, else each mixer has a feed-forward."""
    pattern = model.linear_attention.pattern if model.linear_attention else ""
    separate = "E" in pattern or "-" in pattern
    mixer: Mixer = {"M": "linear_attention", "*": "attention"}.get(symbol, "none")  # type: ignore[assignment]
    if separate:
        feed_forward: FeedForward = {"E": "moe", "-": "dense"}.get(symbol, "none")  # type: ignore[assignment]
        return _layer(model, index, mixer, feed_forward)
    return _layer(model, index, mixer, _feed_forward(model, index))


def _layer(model: ModelSpec, index: int, mixer: Mixer, feed_forward: FeedForward) -> LayerSpec:
    windowed = model.sliding_window is not None and model.sliding_window.covers(index) and mixer == "attention"
    variant = model.variant
    is_global = model.sliding_window is not None and not windowed
    return LayerSpec(
        mixer=mixer,
        feed_forward=feed_forward,
        window=model.sliding_window.size if windowed and model.sliding_window else None,
        num_key_value_heads=(variant.global_num_key_value_heads if is_global else None) or model.num_key_value_heads,
        head_dim=(variant.global_head_dim if is_global else None) or model.head_dim,
        intermediate_size=model.intermediate_size if feed_forward == "dense" else 0,
    )


@lru_cache(maxsize=256)
def _mtp_layer(model: ModelSpec) -> LayerSpec:
    layers = model.layers
    attention = next((layer for layer in reversed(layers) if layer.mixer == "attention"), layers[-1])
    feed_forward = next((layer for layer in reversed(layers) if layer.feed_forward != "none"), layers[-1])
    return LayerSpec(
        mixer=attention.mixer,
        feed_forward=feed_forward.feed_forward,
        window=attention.window,
        num_key_value_heads=attention.num_key_value_heads,
        head_dim=attention.head_dim,
        intermediate_size=feed_forward.intermediate_size,
        is_mtp=True,
    )
