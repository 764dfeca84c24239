"""What a Hugging Face ``model_type`` implies beyond the keys of its ``config.json``.

Facts about modelling code (Hugging Face transformers 5.24, ``modeling_*.py`` and ``configuration_*.py`` of each
family): defaults of absent keys, norms, biases and gates that no key mentions, and which key spells which size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from windtunnel.job.model import Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One kind of modelling code."""

    mixer: Literal["attention", "mla", "mamba2", "gated_deltanet", "lightning"] = "attention"
    position: Position = "rope"
    tied: bool = False
    """Input and output embedding are shared where the file does not say."""
    activation: str = "silu"
    gated: bool = True
    attention_bias: bool = False
    """Query, key and value have biases where the file does not say."""
    output_bias: bool | None = None
    """Bias of the attention output; None: as query, key and value."""
    mlp_bias: bool = False
    qk_norm: Literal["never", "always", "key"] = "never"
    """``key``: as ``use_qk_norm`` says."""
    qk_norm_width: Literal["head", "full", "weightless"] = "head"
    attention_gate: bool = False
    attention_sinks: bool = False
    norms_per_layer: int | None = None
    expert_norms: int = 0
    """Norms a layer has in addition when it has experts."""
    dense_width: str = "intermediate_size"
    experts: Literal["never", "always", "optional"] = "never"
    expert_width: str = "moe_intermediate_size"
    shared: Literal["keys", "one", "dense"] = "keys"
    """Shared experts: as keys say; one as wide as a routed expert; or the dense feed-forward beside the experts."""
    shared_expert_gate: bool = False
    router_bias: bool = False
    router_scales: bool = False
    """The router has a scale of width hidden_size and one per expert."""
    window: str | None = None
    """Key of the local attention width; None: the family has no local attention."""
    local_per_global: int | None = None
    every: int | None = None
    """Rhythm of local layers where the file lists no layer types; neither: from ``max_window_layers`` on."""


_LLAMA = Family()
_MISTRAL = Family(window="sliding_window", every=1)
_QWEN2 = Family(attention_bias=True, output_bias=False, window="sliding_window")
_QWEN3 = Family(qk_norm="always", window="sliding_window")
_QWEN3_MOE = Family(qk_norm="always", window="sliding_window", experts="always")
_QWEN_HYBRID = Family(
    mixer="gated_deltanet", qk_norm="always", attention_gate=True, experts="always", shared_expert_gate=True
)
_GEMMA2 = Family(tied=True, activation="gelu_pytorch_tanh", norms_per_layer=4, window="sliding_window", every=2)
_GEMMA3 = Family(
    tied=True,
    activation="gelu_pytorch_tanh",
    qk_norm="always",
    norms_per_layer=4,
    window="sliding_window",
    local_per_global=5,
)
_GEMMA4 = Family(
    tied=True,
    activation="gelu_pytorch_tanh",
    qk_norm="always",
    norms_per_layer=4,
    expert_norms=3,
    experts="optional",
    shared="dense",
    router_scales=True,
    window="sliding_window",
    local_per_global=5,
)
_DEEPSEEK = Family(mixer="mla", experts="always")

FAMILIES: dict[str, Family] = {
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
    "deepseek_v32": _DEEPSEEK,
    "gemma": Family(tied=True, activation="gelu_pytorch_tanh"),
    "gemma2": _GEMMA2,
    "gemma3": _GEMMA3,
    "gemma4": _GEMMA4,
    "glm4_moe": Family(output_bias=False, qk_norm="key", experts="always"),
    "glm_moe_dsa": _DEEPSEEK,
    "gpt_oss": Family(
        attention_bias=True,
        mlp_bias=True,
        attention_sinks=True,
        experts="always",
        expert_width="intermediate_size",
        router_bias=True,
        window="sliding_window",
        every=2,
    ),
    "kimi_k2": _DEEPSEEK,
    "llama": _LLAMA,
    "llama4": Family(
        qk_norm="key",
        qk_norm_width="weightless",
        dense_width="intermediate_size_mlp",
        experts="always",
        expert_width="intermediate_size",
        shared="one",
        window="attention_chunk_size",
        local_per_global=3,
    ),
    "mimo": _QWEN2,
    "minimax": Family(mixer="lightning", experts="always", expert_width="intermediate_size"),
    "minimax_m2": Family(qk_norm="key", qk_norm_width="full", experts="always", expert_width="intermediate_size"),
    "mistral": _MISTRAL,
    "mixtral": Family(window="sliding_window", every=1, experts="always", expert_width="intermediate_size"),
    "nemotron-nas": _LLAMA,
    "nemotron_h": Family(
        mixer="mamba2", position="none", activation="relu2", gated=False, output_bias=False, experts="optional"
    ),
    "olmoe": Family(qk_norm="always", qk_norm_width="full", experts="always", expert_width="intermediate_size"),
    "qwen2": _QWEN2,
    "qwen2_moe": Family(
        attention_bias=True, output_bias=False, window="sliding_window", experts="always", shared_expert_gate=True
    ),
    "qwen3": _QWEN3,
    "qwen3_5_moe": _QWEN_HYBRID,
    "qwen3_moe": _QWEN3_MOE,
    "qwen3_next": _QWEN_HYBRID,
    "qwen3_vl_moe": _QWEN3_MOE,
    "smollm3": Family(tied=True),
}

UNSUPPORTED: dict[str, str] = {
    "num_kv_shared_layers": "layers that share keys and values are not modelled",
    "hidden_size_per_layer_input": "per-layer input embeddings are not modelled",
    "moe_latent_size": "experts in a latent space are not modelled",
    "mamba_proj_bias": "biases of Mamba projections are not modelled",
    "use_bias": "biases of Mamba projections are not modelled",
}
"""Keys whose non-zero value changes the shape in a way no layer kind here describes."""
