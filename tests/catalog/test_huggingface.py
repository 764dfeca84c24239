"""Models from config.json: exact parameter counts, the quirks of each family, and files that are wrong."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from windtunnel.catalog.huggingface import model_from_config
from windtunnel.errors import Fault, FormatError
from windtunnel.job.model import ModelSpec, SlidingWindow
from windtunnel.ops.weights import active_parameters, count, layer_weights, mtp_weights, total_parameters

DATA = Path(__file__).parent.parent / "data"
COUNTS: dict[str, dict[str, int]] = YAML(typ="safe", pure=True).load(DATA / "parameter_counts.yaml")
ALL = sorted(path.stem for path in (DATA / "configs").glob("*.json"))
LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "vocab_size": 100,
    "num_attention_heads": 4,
    "intermediate_size": 128,
}


def config(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((DATA / "configs" / f"{name}.json").read_text())
    return loaded


def model(name: str) -> ModelSpec:
    return model_from_config(config(name), name)


def faults(changes: dict[str, object], base: dict[str, Any] | None = None) -> dict[str, str]:
    with pytest.raises(FormatError) as caught:
        model_from_config({**(base or LLAMA), **changes}, "bad")
    return {fault.path: fault.rule for fault in caught.value.faults}


def test_every_published_config_is_here() -> None:
    assert len(ALL) == 36
    assert set(ALL) - COUNTS.keys() == {"llama-3.3-nemotron-super-49b"}


@pytest.mark.parametrize("name", COUNTS)
def test_total_is_exact(name: str) -> None:
    assert total_parameters(model(name)) == COUNTS[name]["total"]


@pytest.mark.parametrize("name", [name for name, counts in COUNTS.items() if "active_all" in counts])
def test_active_is_exact(name: str) -> None:
    spec, expected = model(name), COUNTS[name]
    assert active_parameters(spec, embedding=True, head=True) == expected["active_all"]
    assert active_parameters(spec, embedding=False, head=True) == expected["active_no_embedding"]
    weights = [weight for layer in spec.layers for weight in layer_weights(spec, layer)]
    assert count(weight for weight in weights if weight.module == "experts") == expected["routed_experts"]


@pytest.mark.parametrize("name", ALL)
def test_names_and_layers_are_complete(name: str) -> None:
    spec = model(name)
    assert spec.name == name
    assert len(spec.layers) == spec.num_layers


def test_cfg_head_dim_explicit() -> None:
    """cfg-head-dim-explicit: head_dim is not hidden_size / heads in many files."""
    files = ["qwen3-32b", "qwen3-0.6b", "gpt-oss-20b", "gemma-3-27b-text", "glm-4.5-air", "qwen3-30b-a3b"]
    assert [model(name).head_dim for name in files] == [128, 128, 64, 128, 128, 128]


def test_cfg_moe_key_names() -> None:
    """cfg-moe-key-names: expert count, width, top-k and shared experts are spelt differently by each family."""
    shapes = {
        "mixtral-8x7b": (8, 2, 14336, 0),
        "qwen3-30b-a3b": (128, 8, 768, 0),
        "qwen2-57b-a14b": (64, 8, 2560, 20480),
        "deepseek-v3": (256, 8, 2048, 2048),
        "gpt-oss-120b": (128, 4, 2880, 0),
        "glm-4.5": (160, 8, 1536, 1536),
        "llama-4-scout": (16, 1, 8192, 8192),
        "minimax-m2.5": (256, 8, 1536, 0),
        "olmoe-1b-7b": (64, 8, 1024, 0),
        "gemma-4-26b-a4b": (128, 8, 704, 2112),
        "nemotron-3-nano-30b-a3b": (128, 6, 1856, 3712),
    }
    for name, expected in shapes.items():
        moe = model(name).moe
        assert moe is not None
        sizes = (moe.num_experts, moe.num_experts_per_token, moe.moe_intermediate_size)
        assert (*sizes, moe.shared_expert_intermediate_size) == expected, name
    assert model("llama-4-maverick").intermediate_size == 16384


def test_cfg_tie_default_gemma() -> None:
    """cfg-tie-default-gemma: an absent tie_word_embeddings means true for Gemma."""
    assert total_parameters(model("gemma-3-27b-text")) == 27009346304
    untied = model_from_config({**config("gemma-3-27b-text"), "tie_word_embeddings": False}, "untied")
    assert total_parameters(untied) == 28418976512


@pytest.mark.parametrize("name", ["deepseek-v3", "kimi-k2", "minimax-m2.5", "gpt-oss-20b"])
def test_cfg_quantized_checkpoint(name: str) -> None:
    """cfg-quantized-checkpoint: how weights are stored says nothing about training."""
    plain = config(name)
    del plain["quantization_config"]
    assert model_from_config(plain, name) == model(name)


def test_cfg_active_param_conventions() -> None:
    """cfg-active-param-conventions: gpt-oss leaves the embedding out, Mixtral counts both ends."""
    assert active_parameters(model("gpt-oss-120b"), embedding=False, head=True) == 5132849472
    assert active_parameters(model("gpt-oss-20b"), embedding=False, head=True) == 3608307264
    assert active_parameters(model("mixtral-8x7b"), embedding=True, head=True) == 12879925248
    assert active_parameters(model("deepseek-v3"), embedding=True, head=True) == 37552282624


def test_cfg_megatron_moe_ffn_fallback() -> None:
    """cfg-megatron-moe-ffn-fallback: Qwen2-57B-A14B has experts of width 2560."""
    spec = model("qwen2-57b-a14b")
    assert spec.moe is not None
    assert spec.moe.moe_intermediate_size == 2560
    assert total_parameters(spec) == 57408658944


def test_cfg_primus_glm47_mismatch() -> None:
    """cfg-primus-glm47-mismatch: the released model has 92 layers, 3 of them dense."""
    kinds = [layer.feed_forward for layer in model("glm-4.5").layers]
    assert (len(kinds), kinds.count("dense")) == (92, 3)


def test_layers_found_by_search_differ() -> None:
    layers = model("llama-3.3-nemotron-super-49b").layers
    assert [layer.mixer for layer in layers].count("none") == 31
    assert {layer.num_key_value_heads for layer in layers if layer.mixer == "attention"} == {8}
    assert layers[0].intermediate_size == 14336
    assert layers[1].intermediate_size == 28672
    assert 49e9 < total_parameters(model("llama-3.3-nemotron-super-49b")) < 50e9


def test_windows_are_rhythms() -> None:
    assert model("gpt-oss-120b").sliding_window == SlidingWindow(size=128, every=2)
    assert model("gemma-3-27b-text").sliding_window == SlidingWindow(size=1024, local_per_global=5)
    assert model("gemma-4-26b-a4b").sliding_window == SlidingWindow(size=1024, local_per_global=5)
    assert model("llama-4-scout").sliding_window == SlidingWindow(size=8192, local_per_global=3)
    assert model("mixtral-8x7b").sliding_window is None
    assert model("mimo-7b").sliding_window is None


def test_window_without_rhythm_is_listed() -> None:
    local = ["sliding_attention", "full_attention", "full_attention", "sliding_attention"]
    spec = model_from_config(
        {**LLAMA, "model_type": "mistral", "num_hidden_layers": 4, "sliding_window": 32, "layer_types": local}, "odd"
    )
    assert [layer.window for layer in spec.layers] == [32, None, None, 32]


def test_qwen_windows_start_late() -> None:
    late = {**LLAMA, "model_type": "qwen2", "sliding_window": 32, "use_sliding_window": True, "max_window_layers": 1}
    assert [layer.window for layer in model_from_config(late, "late").layers] == [None, 32]


def test_expert_layers_by_list() -> None:
    base = config("qwen3-30b-a3b")
    leading = model_from_config({**base, "mlp_only_layers": [0, 1]}, "leading")
    assert leading.moe is not None
    assert leading.moe.num_dense_layers == 2
    odd = model_from_config({**base, "mlp_only_layers": [0, 7]}, "odd")
    assert [i for i, layer in enumerate(odd.layers) if layer.feed_forward == "dense"] == [0, 7]
    assert odd.layers[7].intermediate_size == 6144


def test_interleaved_experts() -> None:
    kinds = [layer.feed_forward for layer in model("llama-4-maverick").layers]
    assert kinds == ["dense", "moe"] * 24


def test_mtp_layers_and_size() -> None:
    """DeepSeek-V3, README_WEIGHTS.md: about 11.5 B parameters of its own in the prediction module."""
    assert [model(name).num_mtp_layers for name in ("deepseek-v3", "kimi-k2", "minimax-m2.5")] == [1, 0, 3]
    assert count(mtp_weights(model("deepseek-v3"))) == pytest.approx(11.5e9, rel=0.02)


def test_hybrid_patterns() -> None:
    mixers = [layer.mixer for layer in model("qwen3-next-80b-a3b").layers]
    assert mixers == (["linear_attention"] * 3 + ["attention"]) * 12
    nano = [(layer.mixer, layer.feed_forward) for layer in model("nemotron-3-nano-30b-a3b").layers]
    assert nano.count(("linear_attention", "none")) == 23
    assert nano.count(("none", "moe")) == 23
    assert nano.count(("attention", "none")) == 6


def test_lightning_attention_reads() -> None:
    spec = model_from_config(
        {
            **LLAMA, "model_type": "minimax", "num_local_experts": 4, "num_experts_per_tok": 2,
            "attn_type_list": [0, 1], "head_dim": 16,
        },
        "lightning",
    )  # fmt: skip
    assert [layer.mixer for layer in spec.layers] == ["linear_attention", "attention"]


def test_missing_key_value_heads_and_null_mean_full_attention() -> None:
    assert model_from_config(LLAMA, "a").num_key_value_heads == 4
    assert model_from_config({**LLAMA, "num_key_value_heads": None}, "a").num_key_value_heads == 4


def test_all_faults_are_told_at_once() -> None:
    found = faults({"num_hidden_layers": "2", "hidden_size": -1, "vocab_size": None, "attention_bias": "no"})
    assert found.keys() == {"num_hidden_layers", "hidden_size", "vocab_size", "attention_bias"}
    assert found["vocab_size"] == "is required"


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"model_type": "lama"}, "model_type"),
        ({"model_type": None}, "model_type"),
        ({"model_type": 7}, "model_type"),
        ({"text_config": 5}, "text_config"),
        ({"num_hidden_layers": True}, "num_hidden_layers"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ({"hidden_size": 65}, "hidden_size"),
        ({"hidden_size": 64.5}, "hidden_size"),
        ({"num_key_value_heads": 3}, "num_key_value_heads"),
        ({"hidden_act": "tanh"}, "hidden_act"),
        ({"intermediate_size": None}, "intermediate_size"),
        ({"block_configs": [1, 2]}, "block_configs"),
        ({"block_configs": [{}, {}]}, "block_configs[0].attention"),
        ({"block_configs": []}, "block_configs"),
        ({"use_bias": True}, "use_bias"),
    ],
)
def test_faults_name_the_key(changes: dict[str, object], path: str) -> None:
    assert path in faults(changes)


@pytest.mark.parametrize(
    ("name", "changes", "path"),
    [
        ("nemotron-h-56b", {"hybrid_override_pattern": "MX"}, "hybrid_override_pattern"),
        ("nemotron-h-56b", {"use_conv_bias": False}, "use_conv_bias"),
        ("nemotron-3-nano-30b-a3b", {"n_routed_experts": None}, "n_routed_experts"),
        ("nemotron-3-nano-30b-a3b", {"moe_latent_size": 64}, "moe_latent_size"),
        ("deepseek-v3", {"kv_lora_rank": None}, "kv_lora_rank"),
        ("deepseek-v3", {"num_experts_per_tok": 300}, "num_experts_per_tok"),
        ("glm-5", {"indexer_types": ["full", "shared"]}, "indexer_types"),
        ("gpt-oss-20b", {"layer_types": ["full_attention"]}, "layer_types"),
        ("qwen3-next-80b-a3b", {"layer_types": ["recurrent"] * 48}, "layer_types"),
    ],
)
def test_faults_of_families(name: str, changes: dict[str, object], path: str) -> None:
    assert path in faults(changes, config(name))


def test_nested_faults_carry_their_path() -> None:
    nested = config("gemma-4-26b-a4b")
    nested["text_config"]["hidden_size"] = "wide"
    assert "text_config.hidden_size" in faults({}, nested)


def test_not_a_mapping() -> None:
    with pytest.raises(FormatError):
        model_from_config([], "list")  # type: ignore[arg-type]


JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_whatever_a_value_is_only_a_format_error_comes_out(data: st.DataObject) -> None:
    broken = copy.deepcopy(config(data.draw(st.sampled_from(ALL))))
    part = broken.get("text_config", broken)
    for _ in range(data.draw(st.integers(1, 3))):
        part[data.draw(st.sampled_from(sorted(part)))] = data.draw(JUNK)
    found: tuple[Fault, ...] = ()
    try:
        spec = model_from_config(broken, "broken")
    except FormatError as error:
        found = error.faults
    else:
        assert total_parameters(spec) > 0
    assert all(fault.path and fault.rule and fault.remedy for fault in found)
