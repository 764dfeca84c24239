"""The ``variant`` of a catalog model: what released families have beyond the keys of a job file."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StrictBool

from windtunnel.catalog.faults import join, show
from windtunnel.catalog.format import Section, SequenceLength, SomeWidth, Text, Width, read_section
from windtunnel.errors import Fault, FormatError
from windtunnel.job.model import FeedForward, Indexer, LayerSpec, Mixer, ModelVariant

_RUN = re.compile(r"(\d{1,4})(?:\*(\d{1,4}))?")


class IndexerSection(Section):
    num_heads: Width
    head_dim: Width
    tokens_per_query: SequenceLength


class LayerKindSection(Section):
    mixer: Mixer
    feed_forward: FeedForward
    window: SequenceLength | None = None
    num_key_value_heads: SomeWidth = 0
    head_dim: SomeWidth = 0
    intermediate_size: SomeWidth = 0


class LayersSection(Section):
    """Heterogeneous layers: the ``kinds`` that occur, and their ``order`` by position, ``0*3 1`` for 0 0 0 1."""

    kinds: Annotated[tuple[LayerKindSection, ...], BeforeValidator(tuple), Field(min_length=1)]
    order: Text


class VariantSection(Section):
    attention_output_bias: StrictBool | None = None
    qk_norm_width: Literal["head", "full", "weightless"] = "head"
    norms_per_layer: SomeWidth | None = None
    attention_gate: StrictBool = False
    shared_expert_gate: StrictBool = False
    indexer: IndexerSection | None = None
    global_head_dim: Width | None = None
    global_num_key_value_heads: Width | None = None
    key_is_value: StrictBool = False
    extra_parameters_per_layer: SomeWidth = 0
    layers: LayersSection | None = None


def read_variant(mapping: object, where: str, num_layers: int) -> ModelVariant:
    """The variant a mapping spells.

    Raises:
        FormatError: unknown keys, ill-typed values, or an order that does not name one kind a layer.
    """
    values = read_section(VariantSection, mapping, where)
    if values.get("indexer"):
        values["indexer"] = Indexer(**values["indexer"])
    if values.get("layers"):
        values["layers"] = _layers(values["layers"], join(where, "layers", "order"), num_layers)
    return ModelVariant(**values)


def _layers(section: dict[str, Any], where: str, num_layers: int) -> tuple[LayerSpec, ...]:
    kinds = tuple(LayerSpec(**kind) for kind in section["kinds"])
    order = _order(section["order"])
    if order is None or len(order) != num_layers or max(order) >= len(kinds):
        rule = f"must name one of the {len(kinds)} kinds for each of {num_layers} layers"
        raise FormatError(Fault(where, show(section["order"]), rule, "write positions and runs, like 0*3 1"))
    return tuple(kinds[position] for position in order)


def _order(text: str) -> list[int] | None:
    runs = [_RUN.fullmatch(part) for part in text.split()]
    positions: list[int] = []
    for run in runs:
        if run is None:
            return None
        positions += [int(run[1])] * int(run[2] or 1)
    return positions or None


def variant_to_mapping(variant: ModelVariant) -> dict[str, object]:
    """The keys ``read_variant`` reads; those at their default are left out."""
    mapping = given(variant, ModelVariant())
    if variant.indexer is not None:
        mapping["indexer"] = given(variant.indexer, None)
    if variant.layers is not None:
        mapping["layers"] = _layers_to_mapping(variant.layers)
    return mapping


def _layers_to_mapping(layers: tuple[LayerSpec, ...]) -> dict[str, object]:
    kinds = list(dict.fromkeys(layers))
    runs: list[list[int]] = []
    for layer in layers:
        position = kinds.index(layer)
        if runs and runs[-1][0] == position:
            runs[-1][1] += 1
        else:
            runs.append([position, 1])
    order = " ".join(f"{position}*{number}" if number > 1 else f"{position}" for position, number in runs)
    plain = LayerSpec(mixer="none", feed_forward="none")
    named = [{"mixer": kind.mixer, "feed_forward": kind.feed_forward, **given(kind, plain)} for kind in kinds]
    return {"kinds": named, "order": order}


def given(value: Any, default: Any) -> dict[str, object]:
    """The fields of a dataclass that differ from those of ``default``; all that are not None without one."""
    names = [item.name for item in fields(value)]
    return {name: getattr(value, name) for name in names if getattr(value, name) != getattr(default, name, None)}
