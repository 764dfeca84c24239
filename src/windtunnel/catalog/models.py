"""The catalog of models: one YAML file each under ``data/models``, in the keys of a job file's ``model``.

Besides those keys a file holds ``aliases`` (other spellings, Hugging Face ids), ``source``, and ``variant`` for what
a job file cannot spell.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from windtunnel.catalog.faults import join, shape_fault, show
from windtunnel.catalog.files import JOB_LIMIT, data_file, data_names, load_data, parse_json, read_text
from windtunnel.catalog.format import ModelSection, read_section
from windtunnel.catalog.huggingface import model_from_config
from windtunnel.catalog.variant import given, read_variant, variant_to_mapping
from windtunnel.errors import Fault, FormatError, MissingError
from windtunnel.job.model import MLA, LinearAttention, ModelSpec, ModelVariant, MoE, SlidingWindow

_FOLDER = "models"
_CATALOG_KEYS = ("aliases", "source")
_REQUIRED = ("num_layers", "hidden_size", "vocab_size", "num_attention_heads")
_PARTS = {"moe": MoE, "mla": MLA, "sliding_window": SlidingWindow, "linear_attention": LinearAttention}
_ALWAYS = ("name", *_REQUIRED, "num_key_value_heads", "head_dim", "intermediate_size")
_PART_DEFAULTS: dict[str, object] = {
    "shared_expert_intermediate_size": 0, "num_dense_layers": 0, "layer_frequency": 1, "router_bias": False,
    "conv_width": 4,
}  # fmt: skip
_UNNAMED = "unnamed"


def model_names() -> tuple[str, ...]:
    """Names of the catalog, sorted; aliases not included."""
    return data_names(_FOLDER)


@lru_cache(maxsize=128)
def find_model(name: str) -> ModelSpec:
    """A catalog model by name, alias, or Hugging Face id with or without its organisation; case does not matter.

    Raises:
        MissingError: no such model; names the nearest three.
    """
    return read_model(_entry(name), f"{_FOLDER}/{name}")


def model_aliases(name: str) -> tuple[str, ...]:
    """Other spellings of a catalog model.

    Raises:
        MissingError: no such model.
    """
    return tuple(str(alias) for alias in _entry(name).get("aliases", ()))


def _entry(name: str) -> Mapping[str, Any]:
    wanted, names = _fold(name), model_names()
    if wanted in names:
        return _load(wanted)
    # Aliases stand in the models' own files; only those whose text mentions the name are parsed.
    for candidate in names:
        if wanted in _fold(data_file(_FOLDER, f"{candidate}.yaml").read_text(encoding="utf-8")):
            entry = _load(candidate)
            if wanted in _spellings(entry):
                return entry
    near = ", ".join(difflib.get_close_matches(wanted.rpartition("/")[2], names, n=3, cutoff=0.0))
    remedy = f"the nearest names are {near}; `windtunnel list models` shows all"
    raise MissingError(Fault("model", show(name), "no such model is in the catalog", remedy))


def _load(name: str) -> Mapping[str, Any]:
    entry = load_data(_FOLDER, f"{name}.yaml")
    if not isinstance(entry, Mapping):
        raise FormatError(shape_fault(entry, f"{_FOLDER}/{name}.yaml"))
    return entry


def _fold(name: str) -> str:
    return name.strip().casefold().replace("_", "-")


def _spellings(entry: Mapping[str, Any]) -> set[str]:
    folded = {_fold(str(alias)) for alias in entry.get("aliases", ())}
    return folded | {alias.rpartition("/")[2] for alias in folded}


def load_model_file(path: str | os.PathLike[str]) -> ModelSpec:
    """The model of a Hugging Face ``config.json`` of at most 1 MiB, named after its file or folder.

    Raises:
        MissingError: no such file.
        FormatError: a directory, binary or oversized file, invalid JSON, or a model that cannot be described.
    """
    file = Path(path)
    config = parse_json(read_text(path, JOB_LIMIT), os.fspath(path))
    if not isinstance(config, Mapping):
        raise FormatError(shape_fault(config, os.fspath(path)))
    try:
        return model_from_config(config, file.absolute().parent.name if file.stem == "config" else file.stem)
    except FormatError as error:
        raise FormatError([replace(fault, path=f"{os.fspath(path)}: {fault.path}") for fault in error.faults]) from None


def read_model(mapping: object, where: str = "model") -> ModelSpec:
    """The model a mapping with the inline keys of a job file spells, catalog keys and ``variant`` allowed.

    Raises:
        FormatError: every key that is unknown, missing, ill-typed, out of range or at odds with another.
    """
    if not isinstance(mapping, Mapping):
        raise FormatError(shape_fault(mapping, where))
    keys = {key: value for key, value in mapping.items() if key not in (*_CATALOG_KEYS, "variant")}
    values = {key: value for key, value in read_section(ModelSection, keys, where).items() if value is not None}
    faults = _faults(values, where, has_layers=_lists_layers(mapping))
    if faults:
        raise FormatError(faults)
    variant = ModelVariant()
    if mapping.get("variant") is not None:
        variant = read_variant(mapping["variant"], join(where, "variant"), values["num_layers"])
    return _model(values, variant)


def _lists_layers(mapping: Mapping[str, Any]) -> bool:
    variant = mapping.get("variant")
    return isinstance(variant, Mapping) and variant.get("layers") is not None


def _model(values: dict[str, Any], variant: ModelVariant) -> ModelSpec:
    if "mla" in values:
        values["mla"].setdefault("q_lora_rank", None)
    values = {key: _PARTS[key](**value) if key in _PARTS else value for key, value in values.items()}
    mla, heads = values.get("mla"), values["num_attention_heads"]
    values.setdefault("name", _UNNAMED)
    values.setdefault("num_key_value_heads", heads)
    values.setdefault("head_dim", mla.qk_head_dim if mla else values["hidden_size"] // heads)
    values.setdefault("intermediate_size", 0)
    return ModelSpec(**values, variant=variant)


def _faults(values: dict[str, Any], where: str, *, has_layers: bool) -> list[Fault]:
    """What is at odds between keys that are each well-formed."""
    faults = [Fault(join(where, key), "", "is required", "add it") for key in _REQUIRED if key not in values]
    if "base" in values:
        rule = "a base is resolved before a model is read"
        faults.append(Fault(join(where, "base"), values["base"], rule, "name it in a job file"))
    return [*faults, *_head_faults(values, where), *_layer_faults(values, where, has_layers=has_layers)]


def _head_faults(values: dict[str, Any], where: str) -> list[Fault]:
    heads, hidden, kv = (values.get(key) for key in ("num_attention_heads", "hidden_size", "num_key_value_heads"))
    if values.get("mla"):
        given_anyway = [key for key in ("num_key_value_heads", "head_dim") if key in values]
        rule = "mla has its own head sizes"
        return [Fault(join(where, key), str(values[key]), rule, "leave it out") for key in given_anyway]
    faults = []
    if heads and kv and heads % kv:
        rule = f"must divide num_attention_heads, {heads}"
        faults.append(Fault(join(where, "num_key_value_heads"), str(kv), rule, "correct one of them"))
    if heads and hidden and "head_dim" not in values and hidden % heads:
        rule = f"must be a multiple of num_attention_heads, {heads}, without head_dim"
        faults.append(Fault(join(where, "hidden_size"), str(hidden), rule, "add head_dim, or correct one of them"))
    return faults


def _layer_faults(values: dict[str, Any], where: str, *, has_layers: bool) -> list[Fault]:
    layers, moe, pattern = values.get("num_layers"), values.get("moe"), _pattern(values)
    faults = []
    if pattern and layers and len(pattern) != layers:
        rule = f"one symbol a layer is due: {layers}, not {len(pattern)}"
        path = join(where, "linear_attention", "pattern")
        faults.append(Fault(path, pattern[:40], rule, "correct the pattern or num_layers"))
    if "E" in pattern and not moe:
        faults.append(Fault(join(where, "moe"), "", "is required: the pattern has experts, E", "add the expert sizes"))
    if moe and layers and moe.get("num_dense_layers", 0) > layers:
        path, value = join(where, "moe", "num_dense_layers"), str(moe["num_dense_layers"])
        faults.append(Fault(path, value, f"must not exceed num_layers, {layers}", "correct one of them"))
    if not has_layers and not values.get("intermediate_size") and _has_dense_layers(moe, pattern):
        rule = "is required: some layers have a dense feed-forward"
        faults.append(Fault(join(where, "intermediate_size"), "", rule, "add it"))
    return faults


def _pattern(values: dict[str, Any]) -> str:
    section = values.get("linear_attention") or {}
    return str(section.get("pattern", "")).replace("|", "")


def _has_dense_layers(moe: dict[str, Any] | None, pattern: str) -> bool:
    if "E" in pattern or "-" in pattern:
        return "-" in pattern
    return moe is None or moe.get("num_dense_layers", 0) > 0 or moe.get("layer_frequency", 1) > 1


def model_to_mapping(model: ModelSpec) -> dict[str, object]:
    """The keys ``read_model`` reads, defaults left out: ``read_model(model_to_mapping(model)) == model``."""
    mapping: dict[str, object] = {"name": model.name}
    mapping |= {key: getattr(model, key) for key in _REQUIRED}
    if model.mla is None:
        mapping |= {key: getattr(model, key) for key in ("num_key_value_heads", "head_dim")}
    if model.intermediate_size:
        mapping["intermediate_size"] = model.intermediate_size
    defaults = ModelSpec(**{key: getattr(model, key) for key in _ALWAYS})
    mapping |= given(model, defaults)
    for key in _PARTS.keys() & mapping.keys():
        mapping[key] = _part_to_mapping(mapping[key])
    if model.variant != ModelVariant():
        mapping["variant"] = variant_to_mapping(model.variant)
    return mapping


def _part_to_mapping(part: object) -> dict[str, object]:
    return {key: value for key, value in given(part, None).items() if (key, value) not in _PART_DEFAULTS.items()}
