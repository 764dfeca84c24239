"""The model of a job: a catalog name, a ``config.json``, an inline mapping, or a catalog model with changes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from windtunnel.catalog.models import find_model, load_model_file, model_to_mapping, read_model
from windtunnel.job.model import ModelSpec


def read_model_value(value: str | Mapping[str, Any], base_dir: Path) -> tuple[ModelSpec, tuple[str, ...]]:
    """The model of a job's ``model`` value and what there is to note; file paths are relative to ``base_dir``.

    Raises:
        MissingError: no such catalog model or file.
        FormatError: every key of an inline model that is wrong.
    """
    if isinstance(value, str):
        return _named(value, base_dir), ()
    model = read_model({key: item for key, item in value.items() if item is not None})
    return model, _notes(model, value)


def _named(name: str, base_dir: Path) -> ModelSpec:
    return load_model_file(base_dir / name) if _is_file(name, base_dir) else find_model(name)


def _is_file(name: str, base_dir: Path) -> bool:
    """A path rather than a catalog name; Hugging Face ids hold a slash too and are names unless such a file exists."""
    return name.endswith(".json") or name.startswith((".", "/", "~")) or (base_dir / name).is_file()


def with_base(job: Mapping[str, Any], base_dir: Path) -> Mapping[str, Any]:
    """A job whose model's ``base`` is written out: the base's own keys, replaced by those present; null takes one away.

    Raises:
        MissingError: the base is neither in the catalog nor a file.
    """
    model = job.get("model")
    if not isinstance(model, Mapping) or not isinstance(model.get("base"), str):
        return job
    base = str(model["base"])
    changes = {"name": f"{base} (changed)", **{key: value for key, value in model.items() if key != "base"}}
    return {**job, "model": _merged(model_to_mapping(_named(base, base_dir)), changes)}


def _merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Mappings merge key by key, anything else is replaced."""
    shared = [key for key in new if isinstance(old.get(key), Mapping) and isinstance(new[key], Mapping)]
    return {**old, **new, **{key: _merged(old[key], new[key]) for key in shared}}


def _notes(model: ModelSpec, given: Mapping[str, Any]) -> tuple[str, ...]:
    unused = all(layer.feed_forward != "dense" for layer in model.layers)
    if unused and given.get("intermediate_size"):
        return (f"model.intermediate_size = {model.intermediate_size} is ignored: no layer has a dense feed-forward",)
    return ()
