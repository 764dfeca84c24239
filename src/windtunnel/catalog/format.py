"""Strict types of what people write: numbers, quantities and names, and the sections for a model and a cluster.

Reading yields nested mappings with the keys that are there and SI values; nothing is filled in here.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictStr,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from windtunnel import units
from windtunnel.catalog.faults import faults_of, shape_fault
from windtunnel.errors import FormatError
from windtunnel.job.cluster import ScaleOutKind, ScaleUpKind
from windtunnel.job.model import Activation, Norm, Position

_MONTH = re.compile(r"^\d{4}-(0[1-9]|1[0-2])$")

# Far above anything that exists; a larger number is a slip of the keyboard, and would be laid out and scheduled.
_MAX_DEGREE = 1_000_000
_MAX_LAYERS = 4_096
_MAX_WIDTH = 16_777_216
_MAX_VOCABULARY = 1_000_000_000
_MAX_SEQUENCE = 1_000_000_000
_MAX_BATCH = 10_000_000
_MAX_FLOAT = 1e30


class Section(BaseModel):
    """A mapping whose keys are all known."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def refuse(rule: str, remedy: str) -> PydanticCustomError:
    """A validation error that already knows its rule and its remedy."""
    return PydanticCustomError("rule", "{rule}; {remedy}", {"rule": rule, "remedy": remedy})


def _whole(low: int, high: int) -> Callable[[object], int]:
    def check(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise refuse(f"a whole number is due, not {kind_of(value)}", f"write a bare integer from {low} to {high}")
        if not low <= value <= high:
            raise refuse(f"must be from {low} to {high}", "correct the number" if value > high else f"at least {low}")
        return value

    return check


def real(low: float, high: float = _MAX_FLOAT, *, open_low: bool = False) -> Callable[[object], float]:
    bound = f"{'above' if open_low else 'at least'} {low:g} and at most {high:g}"

    def check(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise refuse(f"a bare number is due, not {kind_of(value)}", f"write a number {bound}")
        if not math.isfinite(value) or not low <= value <= high or (open_low and value == low):
            raise refuse(f"must be {bound}", "correct the number")
        return float(value)

    return check


def _quantity(dimension: units.Dimension, *, zero: bool = False) -> Callable[[object], float]:
    def check(value: object) -> float:
        try:
            parsed = units.parse(value, dimension)
        except units.UnitError as error:
            raise refuse(error.rule, error.remedy) from None
        if parsed == 0 and not zero:
            raise refuse("must be above 0", "correct the number or leave the key out")
        if parsed > _MAX_FLOAT:
            raise refuse(f"must be at most {_MAX_FLOAT:g} in SI units", "correct the number")
        return parsed

    return check


def _written(dimension: units.Dimension, example: str) -> WithJsonSchema:
    """How a schema says that a quantity is text with a unit."""
    shown = f"a number and one of {', '.join(units.UNITS[dimension])}"
    return WithJsonSchema({"type": "string", "description": shown, "examples": [example]})


def kind_of(value: object) -> str:
    names = {bool: "a boolean", str: "text", float: "a fraction", dict: "a mapping", list: "a list", type(None): "null"}
    return names.get(type(value), type(value).__name__)


def _month(value: object) -> str:
    if isinstance(value, dt.date):
        return f"{value.year:04d}-{value.month:02d}"
    if isinstance(value, str) and _MONTH.fullmatch(value):
        return value
    raise refuse("a year and month is due", "write it like 2025-02")


def nothing_is_empty(value: object) -> object:
    """``moe:`` with nothing below it means a section left out."""
    return {} if value is None else value


def listed(value: object) -> object:
    """Lists become tuples: values are frozen from the first moment."""
    return tuple(value) if isinstance(value, list) else value


Degree = Annotated[int, Field(ge=1, le=_MAX_DEGREE), BeforeValidator(_whole(1, _MAX_DEGREE))]
Layers = Annotated[int, Field(ge=1, le=_MAX_LAYERS), BeforeValidator(_whole(1, _MAX_LAYERS))]
SomeLayers = Annotated[int, Field(ge=0, le=_MAX_LAYERS), BeforeValidator(_whole(0, _MAX_LAYERS))]
Width = Annotated[int, Field(ge=1, le=_MAX_WIDTH), BeforeValidator(_whole(1, _MAX_WIDTH))]
SomeWidth = Annotated[int, Field(ge=0, le=_MAX_WIDTH), BeforeValidator(_whole(0, _MAX_WIDTH))]
Vocabulary = Annotated[int, Field(ge=1, le=_MAX_VOCABULARY), BeforeValidator(_whole(1, _MAX_VOCABULARY))]
SequenceLength = Annotated[int, Field(ge=1, le=_MAX_SEQUENCE), BeforeValidator(_whole(1, _MAX_SEQUENCE))]
Sequences = Annotated[int, Field(ge=1, le=_MAX_BATCH), BeforeValidator(_whole(1, _MAX_BATCH))]
Positive = Annotated[float, BeforeValidator(real(0, open_low=True))]
NotNegative = Annotated[float, BeforeValidator(real(0))]
Fraction = Annotated[float, BeforeValidator(real(0, 1))]
Imbalance = Annotated[float, BeforeValidator(real(1, 1e6))]
Oversubscription = Annotated[float, BeforeValidator(real(1, 1e6))]
Probability = Annotated[float, BeforeValidator(real(0, 0.999999))]
Bytes = Annotated[float, BeforeValidator(_quantity("bytes")), _written("bytes", "80 GiB")]
Bandwidth = Annotated[float, BeforeValidator(_quantity("bandwidth")), _written("bandwidth", "3.35 TB/s")]
Seconds = Annotated[float, BeforeValidator(_quantity("time")), _written("time", "14.65 s")]
Latency = Annotated[float, BeforeValidator(_quantity("time", zero=True)), _written("time", "5 us")]
Watts = Annotated[float, BeforeValidator(_quantity("power")), _written("power", "700 W")]
FlopRate = Annotated[float, BeforeValidator(_quantity("flops")), _written("flops", "989 TFLOP/s")]
Month = Annotated[str, Field(pattern=_MONTH.pattern), BeforeValidator(_month)]
Text = Annotated[StrictStr, Field(min_length=1, max_length=4096)]


class SlidingWindowSection(Section):
    size: SequenceLength
    every: Layers | None = None
    local_per_global: Layers | None = None

    @model_validator(mode="after")
    def _one_rhythm(self) -> SlidingWindowSection:
        if (self.every is None) == (self.local_per_global is None):
            raise refuse("exactly one of every and local_per_global is due", "write every: 1 for all layers")
        return self


class MoESection(Section):
    num_experts: Width
    num_experts_per_token: Width
    moe_intermediate_size: Width
    shared_expert_intermediate_size: SomeWidth = 0
    num_dense_layers: SomeLayers = 0
    layer_frequency: Layers = 1
    num_groups: Width | None = None
    groups_per_token: Width | None = None
    router_bias: StrictBool = False

    @model_validator(mode="after")
    def _enough_experts(self) -> MoESection:
        if self.num_experts_per_token > self.num_experts:
            raise refuse("num_experts_per_token must not exceed num_experts", f"at most {self.num_experts}")
        return self


class MLASection(Section):
    q_lora_rank: Width | None = None
    kv_lora_rank: Width
    qk_nope_head_dim: Width
    qk_rope_head_dim: SomeWidth
    v_head_dim: Width


class LinearAttentionSection(Section):
    kind: Literal["mamba2", "gated_deltanet", "lightning"]
    pattern: Annotated[StrictStr, Field(min_length=1, max_length=_MAX_LAYERS, pattern=r"^[ME*|\-]+$")]
    num_heads: Width
    head_dim: Width
    state_dim: Width
    num_groups: Width
    conv_width: Width = 4


class ModelSection(Section):
    """An inline model; with ``base`` a catalog model of which the keys present replace values."""

    base: Text | None = None
    name: Text | None = None
    num_layers: Layers | None = None
    hidden_size: Width | None = None
    vocab_size: Vocabulary | None = None
    num_attention_heads: Width | None = None
    num_key_value_heads: Width | None = None
    head_dim: Width | None = None
    intermediate_size: SomeWidth | None = None
    activation: Activation = "swiglu"
    norm: Norm = "rmsnorm"
    position: Position = "rope"
    attention_bias: StrictBool = False
    mlp_bias: StrictBool = False
    qk_norm: StrictBool = False
    attention_sinks: StrictBool = False
    tie_word_embeddings: StrictBool = False
    sliding_window: SlidingWindowSection | None = None
    moe: MoESection | None = None
    mla: MLASection | None = None
    num_mtp_layers: SomeLayers = 0
    linear_attention: LinearAttentionSection | None = None
    max_position_embeddings: SequenceLength | None = None
    vocab_multiple: Vocabulary | None = None


class InlineModelSection(ModelSection):
    """A model in a job; ``variant`` holds what comes with a catalog model and no key spells."""

    variant: dict[str, Any] | None = None


class ScaleUpSection(Section):
    kind: ScaleUpKind | None = None
    domain_size: Degree | None = None
    bandwidth: Bandwidth | None = None
    latency: Latency | None = None


class ScaleOutSection(Section):
    kind: ScaleOutKind | None = None
    bandwidth: Bandwidth | None = None
    latency: Latency | None = None
    nics_per_node: Degree | None = None
    oversubscription: Oversubscription = 1.0


class HostSection(Section):
    memory: Bytes | None = None
    pcie_bandwidth: Bandwidth | None = None
    kind: Literal["x86", "grace"] | None = None


def name_or_mapping(value: object) -> object:
    if not isinstance(value, (str, Mapping)) or value == "":
        raise refuse(
            f"a name or a mapping is due, not {kind_of(value)}", "write a catalog name or the fields themselves"
        )
    return value


class ClusterSection(Section):
    accelerator: Annotated[str | dict[str, Any], BeforeValidator(name_or_mapping)]
    num_accelerators: Degree
    accelerators_per_node: Degree | None = None
    scale_up: Annotated[ScaleUpSection, BeforeValidator(nothing_is_empty)] = ScaleUpSection()
    scale_out: Annotated[ScaleOutSection, BeforeValidator(nothing_is_empty)] = ScaleOutSection()
    host: Annotated[HostSection, BeforeValidator(nothing_is_empty)] = HostSection()
    power_cap: Watts | None = None
    hbm_capacity: Bytes | None = None
    hbm_bandwidth: Bandwidth | None = None
    price: NotNegative | None = None


def read_section(section: type[Section], mapping: object, where: str = "") -> dict[str, Any]:
    """``mapping`` checked against a section: nested mappings of the keys present, quantities in SI units.

    Raises:
        FormatError: one fault for every key that is unknown, missing, of the wrong type or out of range.
    """
    if not isinstance(mapping, Mapping):
        raise FormatError(shape_fault(mapping, where))
    try:
        return section.model_validate(dict(mapping)).model_dump(exclude_unset=True)
    except ValidationError as error:
        raise FormatError(faults_of(error, section, where)) from None
