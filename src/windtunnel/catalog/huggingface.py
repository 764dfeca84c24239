"""Reads the shape of a model from a Hugging Face ``config.json``; the text part of a multi-modal one.

What the file says about stored weights (``quantization_config``, ``torch_dtype``) says nothing about training and is
ignored, as is every key that changes no size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from windtunnel.catalog.config_layers import decilm_layers, linear_attention, local_window, moe_layers, pattern_layers
from windtunnel.catalog.config_reader import MAX_LAYERS, MAX_TOKENS, ConfigReader
from windtunnel.catalog.families import FAMILIES, UNSUPPORTED, Family
from windtunnel.catalog.faults import did_you_mean, shape_fault
from windtunnel.errors import FormatError
from windtunnel.job.model import MLA, Activation, Indexer, ModelSpec, ModelVariant, MoE

_GATED: dict[str, Activation] = {
    "silu": "swiglu", "swish": "swiglu", "gelu": "geglu", "gelu_new": "geglu", "gelu_pytorch_tanh": "geglu",
}  # fmt: skip
_PLAIN: dict[str, Activation] = {
    "gelu": "gelu", "gelu_new": "gelu", "gelu_pytorch_tanh": "gelu", "relu": "relu", "relu2": "relu2",
}  # fmt: skip
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
_TOP_K = ("num_experts_per_tok", "top_k_experts", "experts_per_token")
_SHARED_WIDTH = ("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "shared_intermediate_size")
_MTP = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")


def model_from_config(config: Mapping[str, object], name: str) -> ModelSpec:
    """The model a ``config.json`` describes, its parameter count exact.

    Raises:
        FormatError: a model_type without description here, or keys missing, ill-typed or impossible: all of them.
    """
    if not isinstance(config, Mapping):
        raise FormatError(shape_fault(config, "config"))
    reader = _text_part(config)
    family = _family(reader)
    for key, rule in UNSUPPORTED.items():
        if reader.config.get(key):
            reader.fault(key, rule, "describe the nearest model inline")
    model = _model(reader, family, name)
    reader.check()
    return model


def _text_part(config: Mapping[str, object]) -> ConfigReader:
    """Multi-modal files nest the language model; whether embeddings are tied may stand outside."""
    outer = ConfigReader(config)
    if not outer.has("text_config"):
        return outer
    text = outer.below(config["text_config"], "text_config")
    outer.check()
    inherited = {key: config.get(key) for key in ("tie_word_embeddings", "model_type") if not text.has(key)}
    return replace(text, config={**text.config, **inherited})


def _family(reader: ConfigReader) -> Family:
    kind = reader.text("model_type")
    family = FAMILIES.get(kind.removesuffix("_text"))
    if family is None:
        known = did_you_mean(kind, FAMILIES)
        rule = "no such model_type is known" if kind else "is required"
        reader.fault("model_type", rule, f"{known}; or describe the model inline")
        raise FormatError(reader.faults)
    return family


def _model(reader: ConfigReader, family: Family, name: str) -> ModelSpec:
    num_layers = reader.require("num_hidden_layers", high=MAX_LAYERS)
    hidden = reader.require("hidden_size")
    heads = reader.require("num_attention_heads")
    mla = _mla(reader) if family.mixer == "mla" else None
    moe = _moe(reader, family, num_layers)
    model = ModelSpec(
        name=name,
        num_layers=num_layers,
        hidden_size=hidden,
        vocab_size=reader.require("vocab_size", high=MAX_TOKENS),
        num_attention_heads=heads,
        num_key_value_heads=_key_value_heads(reader, heads, mla),
        head_dim=mla.qk_head_dim if mla else _head_dim(reader, hidden, heads),
        intermediate_size=reader.whole(family.dense_width),
        activation=_activation(reader, family),
        position=family.position,
        attention_bias=reader.flag("attention_bias", "qkv_bias", default=family.attention_bias),
        mlp_bias=reader.flag("mlp_bias", default=family.mlp_bias),
        qk_norm=family.qk_norm == "always" or (family.qk_norm == "key" and reader.flag("use_qk_norm")),
        attention_sinks=family.attention_sinks,
        tie_word_embeddings=reader.flag("tie_word_embeddings", default=family.tied),
        moe=moe,
        mla=mla,
        num_mtp_layers=_mtp_layers(reader),
        max_position_embeddings=reader.whole("max_position_embeddings", low=1, high=MAX_TOKENS) or None,
        linear_attention=linear_attention(reader, family, num_layers, heads, hidden),
        variant=_variant(reader, family, moe, hidden),
    )
    model = _with_layers(reader, family, model)
    _check_width(reader, family, model)
    return model


def _with_layers(reader: ConfigReader, family: Family, model: ModelSpec) -> ModelSpec:
    """Adds what differs from layer to layer, by rhythm where one describes it, else one by one."""
    if reader.faults:
        return model
    if reader.has("block_configs"):
        layers = decilm_layers(reader, model)
        kv = max((layer.num_key_value_heads for layer in layers), default=1)
        width = max((layer.intermediate_size for layer in layers), default=0)
        variant = replace(model.variant, layers=layers)
        return replace(model, num_key_value_heads=kv, intermediate_size=width, variant=variant)
    if model.moe is not None and model.linear_attention is None:
        model = moe_layers(reader, model)
    elif model.moe is not None:
        model = pattern_layers(reader, model)
    return local_window(reader, family, model)


def _check_width(reader: ConfigReader, family: Family, model: ModelSpec) -> None:
    if reader.faults:
        return
    layers = model.layers
    if any(layer.feed_forward == "dense" and not layer.intermediate_size for layer in layers):
        reader.fault(family.dense_width, "is required: some layers have a dense feed-forward", "add it")
    if any(layer.feed_forward == "moe" for layer in layers) and model.moe is None:
        reader.fault(_EXPERTS[-1], "is required: some layers have experts", "add it")


def _key_value_heads(reader: ConfigReader, heads: int, mla: MLA | None) -> int:
    if mla is not None:
        return heads
    kv = reader.whole("num_key_value_heads", default=heads, low=1)
    if heads % kv:
        reader.fault("num_key_value_heads", f"must divide num_attention_heads, {heads}", "correct one of them")
    return kv


def _head_dim(reader: ConfigReader, hidden: int, heads: int) -> int:
    """Given in many files and then not hidden_size / num_attention_heads; never query_pre_attn_scalar."""
    given = reader.optional("head_dim", "attention_head_dim")
    if given is not None:
        return given
    if hidden % heads:
        reader.fault(
            "hidden_size", f"must be a multiple of num_attention_heads, {heads}, without head_dim", "add head_dim"
        )
    return max(1, hidden // heads)


def _activation(reader: ConfigReader, family: Family) -> Activation:
    keys = ("hidden_activation", "mlp_hidden_act", "hidden_act")
    given = reader.text(*keys, default=family.activation)
    known = _GATED if family.gated else _PLAIN
    if given not in known:
        reader.fault(reader.key(*keys), f"must be one of {', '.join(known)}", did_you_mean(given, known))
    return known.get(given, "swiglu")


def _mla(reader: ConfigReader) -> MLA:
    return MLA(
        q_lora_rank=reader.optional("q_lora_rank"),
        kv_lora_rank=reader.require("kv_lora_rank"),
        qk_nope_head_dim=reader.require("qk_nope_head_dim"),
        qk_rope_head_dim=reader.require("qk_rope_head_dim"),
        v_head_dim=reader.require("v_head_dim"),
    )


def _has_experts(reader: ConfigReader, family: Family) -> bool:
    if family.experts != "optional":
        return family.experts == "always"
    return reader.whole(*_EXPERTS) > 0 and reader.flag("enable_moe_block", default=True)


def _moe(reader: ConfigReader, family: Family, num_layers: int) -> MoE | None:
    if not _has_experts(reader, family):
        return None
    experts, chosen = reader.require(*_EXPERTS), reader.require(*_TOP_K)
    if chosen > experts:
        reader.fault(reader.key(*_TOP_K), f"must not exceed the number of experts, {experts}", "correct one of them")
    groups = reader.whole("n_group", default=1, low=1)
    width = reader.require(family.expert_width)
    return MoE(
        num_experts=experts,
        num_experts_per_token=chosen,
        moe_intermediate_size=width,
        shared_expert_intermediate_size=_shared_width(reader, family, width),
        num_dense_layers=reader.whole("first_k_dense_replace", high=num_layers),
        layer_frequency=_layer_frequency(reader),
        num_groups=groups if groups > 1 else None,
        groups_per_token=reader.require("topk_group", high=groups) if groups > 1 else None,
        router_bias=family.router_bias,
    )


def _layer_frequency(reader: ConfigReader) -> int:
    return reader.whole("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_freq", default=1, low=1)


def _shared_width(reader: ConfigReader, family: Family, width: int) -> int:
    if family.shared == "one":
        return width
    if family.shared == "dense":
        return reader.require(family.dense_width)
    if reader.has(*_SHARED_WIDTH):
        return reader.whole(*_SHARED_WIDTH)
    return reader.whole("n_shared_experts") * width


def _mtp_layers(reader: ConfigReader) -> int:
    return reader.whole(*_MTP, high=MAX_LAYERS) if reader.flag("use_mtp", default=True) else 0


def _variant(reader: ConfigReader, family: Family, moe: MoE | None, hidden: int) -> ModelVariant:
    norms = family.norms_per_layer
    if norms is not None and moe is not None:
        norms += family.expert_norms
    return ModelVariant(
        attention_output_bias=family.output_bias,
        qk_norm_width=family.qk_norm_width,
        norms_per_layer=norms,
        attention_gate=reader.flag("attn_output_gate", default=family.attention_gate),
        shared_expert_gate=family.shared_expert_gate,
        indexer=_indexer(reader),
        global_head_dim=reader.optional("global_head_dim"),
        global_num_key_value_heads=reader.optional("num_global_key_value_heads"),
        key_is_value=reader.flag("attention_k_eq_v"),
        extra_parameters_per_layer=hidden + moe.num_experts if family.router_scales and moe else 0,
    )


def _indexer(reader: ConfigReader) -> Indexer | None:
    if not reader.has("index_n_heads"):
        return None
    kinds = reader.listed("indexer_types", (str,))
    if kinds is not None and set(kinds) != {"full"}:
        reader.fault("indexer_types", "layers that share a selection are not modelled", "describe the model inline")
    return Indexer(
        num_heads=reader.require("index_n_heads"),
        head_dim=reader.require("index_head_dim"),
        tokens_per_query=reader.require("index_topk", high=MAX_TOKENS),
    )
