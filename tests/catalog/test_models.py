"""The model catalog: every file reads, names resolve, mappings round-trip."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from windtunnel.catalog.files import load_data
from windtunnel.catalog.huggingface import model_from_config
from windtunnel.catalog.models import (
    find_model,
    load_model_file,
    model_aliases,
    model_names,
    model_to_mapping,
    read_model,
)
from windtunnel.errors import FormatError, MissingError
from windtunnel.job.model import ModelSpec
from windtunnel.ops.weights import count, embedding_weights, total_parameters

CONFIGS = Path(__file__).parent.parent / "data" / "configs"
INLINE = {
    "name": "small",
    "num_layers": 2,
    "hidden_size": 64,
    "vocab_size": 100,
    "num_attention_heads": 4,
    "intermediate_size": 128,
}
# Counts the authors or the released checkpoints state.
PUBLISHED = {
    "llama2-7b": 6738415616,
    "llama2-13b": 13015864320,
    "llama2-70b": 68976648192,
    "llama3.2-3b": 3212749824,
    "mistral-7b": 7241732096,
    "qwen2.5-7b": 7615616512,
    "qwen2.5-14b": 14770033664,
    "qwen2.5-32b": 32763876352,
    "qwen2.5-72b": 72706203648,
    "deepseek-v2": 235741434880,
    "opt-125m": 125239296,
    "llama-3.3-nemotron-super-49b": 49867145216,
}


def faults(**changes: object) -> set[str]:
    with pytest.raises(FormatError) as caught:
        read_model({key: value for key, value in {**INLINE, **changes}.items() if value != "absent"})
    return {fault.path for fault in caught.value.faults}


@pytest.mark.parametrize("name", model_names())
def test_every_catalog_file(name: str) -> None:
    entry = load_data("models", f"{name}.yaml")
    assert isinstance(entry, dict)
    assert entry["name"] == name
    assert entry["source"]
    model = find_model(name)
    assert len(model.layers) == model.num_layers
    assert read_model(model_to_mapping(model)) == model


def test_no_spelling_names_two_models() -> None:
    spellings = [alias.casefold() for name in model_names() for alias in (name, *model_aliases(name))]
    assert len(spellings) == len(set(spellings))


def test_every_alias_finds_its_model() -> None:
    for name in model_names():
        for alias in model_aliases(name):
            assert find_model(alias).name == name
            assert find_model(alias.rpartition("/")[2]).name == name


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.json")), ids=lambda path: path.stem)
def test_catalog_agrees_with_the_config_it_comes_from(path: Path) -> None:
    config = json.loads(path.read_text())
    catalog = find_model(config["_hf_id"].split(" (")[0])
    assert catalog == model_from_config(config, catalog.name)


@pytest.mark.parametrize(("name", "parameters"), PUBLISHED.items())
def test_published_counts(name: str, parameters: int) -> None:
    assert total_parameters(find_model(name)) == parameters


@pytest.mark.parametrize(
    ("name", "billions"),
    [("megatron-22b", 22), ("megatron-530b", 529.6), ("megatron-1t", 1008), ("nemotron4-15b", 15.6), ("mpt-7b", 6.66),
     ("mpt-30b", 29.98), ("opt-66b", 65.7), ("opt-175b", 174.6), ("moonlight-16b-a3b", 15.96)],
)  # fmt: skip
def test_sizes_the_papers_state(name: str, billions: float) -> None:
    assert total_parameters(find_model(name)) / 1e9 == pytest.approx(billions, rel=5e-3)


def test_cfg_defaults_differ_primus_vs_megatron() -> None:
    """cfg-defaults-differ-primus-vs-megatron: GPT-3 175B as Megatron's own arguments build it."""
    model = find_model("gpt3-175b")
    assert total_parameters(model) == 174615846912
    raw = replace(model, vocab_size=50257)
    padding = count(embedding_weights(raw, 51200)) - count(embedding_weights(raw))
    assert total_parameters(raw) + padding == 174615846912
    untied = replace(model, tie_word_embeddings=False)
    assert total_parameters(untied) - total_parameters(model) == 51200 * 12288


def test_est_cookbook_swiglu_36() -> None:
    """est-cookbook-swiglu-36: three matrices of a gated feed-forward, not two (56.19 B)."""
    sizes = {"num_layers": 80, "hidden_size": 8192, "num_attention_heads": 64, "vocab_size": 152064}
    model = read_model({**sizes, "intermediate_size": 24576})
    assert 71.5e9 < total_parameters(model) < 73.0e9


@pytest.mark.parametrize(
    "name", ["LLAMA3.1-8B", " llama3.1-8b ", "llama3.1_8b", "meta-llama/Llama-3.1-8B", "llama3-8b"]
)
def test_spellings(name: str) -> None:
    assert find_model(name).name == "llama3.1-8b"


@pytest.mark.parametrize("name", ["lama3.1-70b", "meta-llama/Lama3.1-70b"])
def test_unknown_names_get_the_nearest_three(name: str) -> None:
    with pytest.raises(MissingError) as caught:
        find_model(name)
    assert "llama3.1-70b, " in caught.value.faults[0].remedy


@pytest.mark.parametrize("name", ["", "../models/llama3.1-8b", "source", "hidden_size", "x" * 10000])
def test_names_that_name_nothing(name: str) -> None:
    with pytest.raises(MissingError):
        find_model(name)


def test_reading_a_model_is_fast() -> None:
    find_model("llama2-7b")
    start = time.perf_counter()
    find_model.__wrapped__("llama-3.3-nemotron-super-49b")
    assert time.perf_counter() - start < 0.1


def test_inline_defaults() -> None:
    model = read_model(INLINE)
    assert model == ModelSpec(**INLINE, num_key_value_heads=4, head_dim=16)  # type: ignore[arg-type]
    latent = {"kv_lora_rank": 8, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 12}
    mla = read_model({**INLINE, "mla": latent})
    assert (mla.num_key_value_heads, mla.head_dim) == (4, 24)
    assert mla.mla is not None
    assert mla.mla.q_lora_rank is None


def test_intermediate_size_is_optional_where_every_layer_is_moe() -> None:
    moe = {"num_experts": 4, "num_experts_per_token": 2, "moe_intermediate_size": 32}
    inline = {key: value for key, value in INLINE.items() if key != "intermediate_size"}
    assert read_model({**inline, "moe": moe}).intermediate_size == 0
    assert faults(intermediate_size="absent", moe={**moe, "num_dense_layers": 1}) == {"model.intermediate_size"}
    assert faults(intermediate_size="absent") == {"model.intermediate_size"}


@pytest.mark.parametrize(
    ("changes", "paths"),
    [
        ({"num_layers": "absent", "vocab_size": "absent"}, {"model.num_layers", "model.vocab_size"}),
        ({"hidden_sizes": 3, "num_layers": "two"}, {"model.hidden_sizes", "model.num_layers"}),
        ({"num_key_value_heads": 3}, {"model.num_key_value_heads"}),
        ({"hidden_size": 66}, {"model.hidden_size"}),
        ({"base": "llama3.1-8b"}, {"model.base"}),
        ({"variant": {"qk_norm_width": "wide"}}, {"model.variant.qk_norm_width"}),
        ({"variant": {"layers": {"kinds": [], "order": "0"}}}, {"model.variant.layers.kinds"}),
    ],
)
def test_inline_faults(changes: dict[str, object], paths: set[str]) -> None:
    assert faults(**changes) == paths


@pytest.mark.parametrize("order", ["0", "0 0 0", "0*3", "0 1", "x", "0*9999"])
def test_order_of_listed_layers(order: str) -> None:
    kinds = [{"mixer": "attention", "feed_forward": "none", "num_key_value_heads": 4, "head_dim": 16}]
    assert faults(variant={"layers": {"kinds": kinds, "order": order}}) == {"model.variant.layers.order"}


def test_patterns_are_checked() -> None:
    mamba = {"kind": "mamba2", "num_heads": 4, "head_dim": 16, "state_dim": 8, "num_groups": 1}
    assert faults(linear_attention={**mamba, "pattern": "M*M"}) == {"model.linear_attention.pattern"}
    assert faults(linear_attention={**mamba, "pattern": "ME"}) == {"model.moe"}
    latent = {"kv_lora_rank": 8, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 12}
    assert faults(mla=latent, head_dim=16, num_key_value_heads=4) == {"model.head_dim", "model.num_key_value_heads"}
    moe = {"num_experts": 4, "num_experts_per_token": 2, "moe_intermediate_size": 32, "num_dense_layers": 3}
    assert faults(moe=moe) == {"model.moe.num_dense_layers"}


def test_not_a_mapping() -> None:
    with pytest.raises(FormatError):
        read_model(["llama"])


def test_config_file(tmp_path: Path) -> None:
    config = (CONFIGS / "qwen3-8b.json").read_text()
    folder = tmp_path / "Qwen3-8B"
    folder.mkdir()
    (folder / "config.json").write_text(config)
    model = load_model_file(folder / "config.json")
    assert model.name == "Qwen3-8B"
    assert replace(model, name="qwen3-8b") == find_model("qwen3-8b")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[1]",
        b"\x00\x01",
        b"\xff\xfe",
        b'{"model_type": "llama"}',
        b"[" * 100_000,
        b'{"a": NaN}',
        b" " * 2**21,
    ],
    ids=["empty", "cut", "list", "nul", "not utf-8", "incomplete", "deep", "nan", "large"],
)
def test_config_files_that_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.json"
    path.write_bytes(content)
    with pytest.raises(FormatError) as caught:
        load_model_file(path)
    assert all(fault.path.startswith(os.fspath(path)) for fault in caught.value.faults)


def test_missing_file_and_directory(tmp_path: Path) -> None:
    with pytest.raises(MissingError):
        load_model_file(tmp_path / "none.json")
    with pytest.raises(FormatError):
        load_model_file(tmp_path)
