"""What differs from layer to layer in a ``config.json``: experts, local attention, linear attention, sizes.

A rhythm of the job format (leading dense layers, one in n, a pattern) is preferred; where none fits, layers are listed.
"""

from __future__ import annotations

from dataclasses import replace

from windtunnel.catalog.config_reader import MAX_SIZE, ConfigReader
from windtunnel.catalog.families import Family
from windtunnel.job.model import LayerSpec, LinearAttention, ModelSpec, MoE, SlidingWindow

_LOCAL = frozenset({"sliding_attention", "chunked_attention"})
_SYMBOLS = {
    "linear_attention": "M", "mamba": "M", "lightning_attention": "M", "full_attention": "*", "attention": "*",
    "moe": "E", "mlp": "-",
}  # fmt: skip


def linear_attention(
    reader: ConfigReader, family: Family, num_layers: int, heads: int, hidden: int
) -> LinearAttention | None:
    """Sizes and pattern of a family that mixes linear attention with softmax attention; None for every other."""
    if family.mixer in ("attention", "mla"):
        return None
    pattern = _pattern(reader, num_layers)
    if family.mixer == "mamba2":
        if not reader.flag("use_conv_bias", default=True):
            reader.fault("use_conv_bias", "a convolution without bias is not modelled", "describe the model inline")
        return LinearAttention(
            kind="mamba2",
            pattern=pattern,
            num_heads=reader.require("mamba_num_heads"),
            head_dim=reader.require("mamba_head_dim"),
            state_dim=reader.require("ssm_state_size"),
            num_groups=reader.require("n_groups"),
            conv_width=reader.whole("conv_kernel", default=4, low=1),
        )
    if family.mixer == "gated_deltanet":
        return LinearAttention(
            kind="gated_deltanet",
            pattern=pattern,
            num_heads=reader.require("linear_num_value_heads"),
            head_dim=reader.require("linear_value_head_dim"),
            state_dim=reader.require("linear_key_head_dim"),
            num_groups=reader.require("linear_num_key_heads"),
            conv_width=reader.whole("linear_conv_kernel_dim", default=4, low=1),
        )
    width = reader.whole("head_dim", default=max(1, hidden // heads), low=1)
    return LinearAttention(
        kind="lightning", pattern=pattern, num_heads=heads, head_dim=width, state_dim=width, num_groups=heads
    )


def _pattern(reader: ConfigReader, num_layers: int) -> str:
    """One symbol a layer, from whichever of four spellings the file uses."""
    if reader.has("hybrid_override_pattern"):
        return _checked_pattern(reader, num_layers)
    kinds = reader.listed("layer_types", (str,), num_layers) or reader.listed("layers_block_type", (str,), num_layers)
    if kinds is not None:
        odd = sorted({str(kind) for kind in kinds} - _SYMBOLS.keys())
        if odd:
            key = reader.key("layer_types", "layers_block_type")
            reader.fault(key, f"unknown layer types {', '.join(odd)}", f"known: {', '.join(_SYMBOLS)}")
        return "".join(_SYMBOLS.get(str(kind), "*") for kind in kinds)
    lightning = reader.listed("attn_type_list", (int,), num_layers)
    if lightning is not None:
        return "".join("*" if softmax else "M" for softmax in lightning)
    interval = reader.require("full_attention_interval", "layer_types")
    return "".join("M" if (index + 1) % interval else "*" for index in range(num_layers))


def _checked_pattern(reader: ConfigReader, num_layers: int) -> str:
    key = "hybrid_override_pattern"
    pattern = reader.text(key)
    symbols = pattern.replace("|", "")
    if set(symbols) - set("M*E-"):
        reader.fault(key, "holds symbols that are not known", "use M, *, E, - and | only")
    if len(symbols) != num_layers:
        reader.fault(key, f"one symbol a layer is due: {num_layers}, not {len(symbols)}", "correct it or the layers")
    return pattern


def moe_layers(reader: ConfigReader, model: ModelSpec) -> ModelSpec:
    """Which layers have experts: a rhythm, or listed by ``mlp_only_layers``, ``moe_layers`` or ``mlp_layer_types``."""
    sparse = _listed_experts(reader, model)
    if sparse is None or model.moe is None:
        return model
    moe = _rhythm(model.moe, sparse)
    if moe is not None:
        return replace(model, moe=moe)
    layers = tuple(
        replace(
            layer,
            feed_forward="moe" if chosen else "dense",
            intermediate_size=0 if chosen else model.intermediate_size,
        )
        for layer, chosen in zip(model.layers, sparse, strict=True)
    )
    return replace(model, variant=replace(model.variant, layers=layers))


def pattern_layers(reader: ConfigReader, model: ModelSpec) -> ModelSpec:
    """A hybrid whose pattern names experts has its own rhythm; in one that names mixers only, lists may apply."""
    pattern = model.linear_attention.pattern if model.linear_attention else ""
    return model if "E" in pattern or "-" in pattern else moe_layers(reader, model)


def _listed_experts(reader: ConfigReader, model: ModelSpec) -> list[bool] | None:
    kinds = reader.listed("mlp_layer_types", (str,), model.num_layers)
    if kinds is not None:
        return [kind == "sparse" for kind in kinds]
    chosen = reader.listed("moe_layers", (int,))
    if chosen is not None:
        return [index in chosen for index in range(model.num_layers)]
    excluded = reader.listed("mlp_only_layers", (int,))
    if not excluded:
        return None
    step = model.moe.layer_frequency if model.moe else 1
    return [index not in excluded and (index + 1) % step == 0 for index in range(model.num_layers)]


def _rhythm(moe: MoE, sparse: list[bool]) -> MoE | None:
    """Leading dense layers and a frequency with exactly these expert layers, or None."""
    if True not in sparse:
        return None
    first = sparse.index(True)
    for frequency in range(1, first + 2):
        dense = first - frequency + 1
        if sparse == [index >= dense and (index - dense + 1) % frequency == 0 for index in range(len(sparse))]:
            return replace(moe, num_dense_layers=dense, layer_frequency=frequency)
    return None


def local_window(reader: ConfigReader, family: Family, model: ModelSpec) -> ModelSpec:
    """Adds the sliding (or chunked) window to the layers that have one."""
    if family.window is None or not reader.flag("use_sliding_window", default=True):
        return model
    size = reader.whole(family.window, high=2**31)
    local = _local_layers(reader, family, model.num_layers) if size else []
    if not any(local):
        return model
    window = _window(size, local)
    if window is not None and model.variant.layers is None:
        return replace(model, sliding_window=window)
    wide = model.variant.global_head_dim or model.head_dim
    kv = model.variant.global_num_key_value_heads or model.num_key_value_heads
    layers = tuple(
        replace(layer, window=size) if here else replace(layer, head_dim=wide, num_key_value_heads=kv)
        for layer, here in zip(model.layers, local, strict=True)
    )
    return replace(model, variant=replace(model.variant, layers=layers))


def _local_layers(reader: ConfigReader, family: Family, num_layers: int) -> list[bool]:
    kinds = reader.listed("layer_types", (str,), num_layers)
    if kinds is not None:
        return [kind in _LOCAL for kind in kinds]
    if family.every is not None:
        return [index % family.every == 0 for index in range(num_layers)]
    if family.local_per_global is not None:
        period = reader.whole("sliding_window_pattern", default=family.local_per_global + 1, low=1)
        return [(index + 1) % period != 0 for index in range(num_layers)]
    start = reader.whole("max_window_layers", default=num_layers)
    return [index >= start and reader.flag("use_sliding_window") for index in range(num_layers)]


def _window(size: int, local: list[bool]) -> SlidingWindow | None:
    """The rhythm of the job format with exactly these local layers, or None."""
    number = range(1, len(local) + 1)
    candidates = [SlidingWindow(size=size, every=n) for n in number]
    candidates += [SlidingWindow(size=size, local_per_global=n) for n in number]
    fits = (window for window in candidates if [window.covers(index) for index in range(len(local))] == local)
    return next(fits, None)


def decilm_layers(reader: ConfigReader, model: ModelSpec) -> tuple[LayerSpec, ...]:
    """Layers of a model found by architecture search (nemotron-nas): each with its own heads, width, or neither.

    Width: 2/3 · ffn_mult · hidden_size, rounded up to a multiple of 256 (modeling_decilm.py of the released models).
    """
    blocks = reader.listed("block_configs", (dict,), model.num_layers) or []
    return tuple(_decilm_layer(reader.below(block, f"block_configs[{i}]"), model) for i, block in enumerate(blocks))


def _decilm_layer(block: ConfigReader, model: ModelSpec) -> LayerSpec:
    attention, ffn = (block.below(block.config.get(key), key) for key in ("attention", "ffn"))
    for part in (attention, ffn):
        if part.flag("replace_with_linear"):
            part.fault("replace_with_linear", "a linear map in place of a part is not modelled", "describe it inline")
    mixes, feeds = not attention.flag("no_op"), not ffn.flag("no_op")
    group = attention.require("n_heads_in_group", high=model.num_attention_heads) if mixes else 1
    if model.num_attention_heads % group:
        attention.fault(
            "n_heads_in_group", f"must divide num_attention_heads, {model.num_attention_heads}", "correct it"
        )
    width = int(2 * ffn.number("ffn_mult", MAX_SIZE / model.hidden_size) * model.hidden_size / 3) if feeds else 0
    return LayerSpec(
        mixer="attention" if mixes else "none",
        feed_forward="dense" if feeds else "none",
        window=attention.optional("window_length"),
        num_key_value_heads=model.num_attention_heads // group if mixes else 0,
        head_dim=model.head_dim if mixes else 0,
        intermediate_size=-(-width // 256) * 256,
    )
