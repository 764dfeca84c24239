"""The job file, version 1, and the ground-truth record as strict types: what may be written, in which unit, in which range.

Reading yields nested mappings with the keys a user wrote and SI values; nothing is filled in here.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    StrictBool,
    StrictStr,
    Tag,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from windtunnel import units
from windtunnel.catalog.faults import faults_of, shape_fault
from windtunnel.dtypes import Compute, Storage
from windtunnel.errors import FormatError
from windtunnel.job.cluster import ScaleOutKind, ScaleUpKind
from windtunnel.job.model import Activation, Norm, Position
from windtunnel.job.plan import ContextParallelKind, Dispatcher, RecomputeModule, RecomputePolicy, Schedule, Strategy
from windtunnel.job.record import Bar, FlopsConvention, MemoryKind, MemoryRank
from windtunnel.job.software import AttentionBackend, CudaGraphs, Framework, GraphScope

GROUPS = ("tp", "cp", "ep", "dp", "pp")
_MONTH = re.compile(r"\d{4}-(0[1-9]|1[0-2])")

# Far above anything that exists; a larger number is a slip of the keyboard, and would be laid out and scheduled.
_MAX_DEGREE = 1_000_000
_MAX_LAYERS = 4_096
_MAX_WIDTH = 16_777_216
_MAX_VOCABULARY = 1_000_000_000
_MAX_SEQUENCE = 1_000_000_000
_MAX_BATCH = 10_000_000
_MAX_FLOAT = 1e30


def refuse(rule: str, remedy: str) -> PydanticCustomError:
    """A validation error that already knows its rule and its remedy."""
    return PydanticCustomError("rule", "{rule}; {remedy}", {"rule": rule, "remedy": remedy})


def _whole(low: int, high: int) -> Callable[[object], int]:
    def check(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise refuse(f"a whole number is due, not {_kind(value)}", f"write a bare integer from {low} to {high}")
        if not low <= value <= high:
            raise refuse(f"must be from {low} to {high}", "correct the number" if value > high else f"at least {low}")
        return value

    return check


def _real(low: float, high: float = _MAX_FLOAT, *, open_low: bool = False) -> Callable[[object], float]:
    bound = f"{'above' if open_low else 'at least'} {low:g} and at most {high:g}"

    def check(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise refuse(f"a bare number is due, not {_kind(value)}", f"write a number {bound}")
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


def _kind(value: object) -> str:
    names = {bool: "a boolean", str: "text", float: "a fraction", dict: "a mapping", list: "a list", type(None): "null"}
    return names.get(type(value), type(value).__name__)


def _month(value: object) -> str:
    if isinstance(value, dt.date):
        return f"{value.year:04d}-{value.month:02d}"
    if isinstance(value, str) and _MONTH.fullmatch(value):
        return value
    raise refuse("a year and month is due", "write it like 2025-02")


def _order(value: object) -> tuple[str, ...]:
    parts = tuple(value.split("-")) if isinstance(value, str) else ()
    if sorted(parts) != sorted(GROUPS):
        raise refuse(f"each of {', '.join(GROUPS)} is due once", "write it like tp-cp-ep-dp-pp, innermost first")
    return parts


def _share(value: object) -> float:
    named = {"none": 0.0, "full": 1.0}
    if isinstance(value, str) and value in named:
        return named[value]
    if isinstance(value, str):
        raise refuse("one of none, full, or a share from 0 to 1 is due", "write none, full, or a number such as 0.5")
    return _real(0, 1)(value)


def _nothing_is_empty(value: object) -> object:
    """``moe:`` with nothing below it means a section left out."""
    return {} if value is None else value


def _listed(value: object) -> object:
    """Lists become tuples: values are frozen from the first moment."""
    return tuple(value) if isinstance(value, list) else value


def _rows(value: object) -> object:
    """The rows of a custom schedule written in place; text names a file."""
    if isinstance(value, list):
        return tuple(tuple(row) if isinstance(row, list) else row for row in value)
    if not isinstance(value, (str, tuple)):
        raise refuse(f"a file name or a list of rows is due, not {_kind(value)}", "name a file with orders")
    return value


Row = tuple[StrictStr, ...]
Degree = Annotated[int, BeforeValidator(_whole(1, _MAX_DEGREE))]
Layers = Annotated[int, BeforeValidator(_whole(1, _MAX_LAYERS))]
SomeLayers = Annotated[int, BeforeValidator(_whole(0, _MAX_LAYERS))]
Width = Annotated[int, BeforeValidator(_whole(1, _MAX_WIDTH))]
SomeWidth = Annotated[int, BeforeValidator(_whole(0, _MAX_WIDTH))]
Vocabulary = Annotated[int, BeforeValidator(_whole(1, _MAX_VOCABULARY))]
SequenceLength = Annotated[int, BeforeValidator(_whole(1, _MAX_SEQUENCE))]
Sequences = Annotated[int, BeforeValidator(_whole(1, _MAX_BATCH))]
Positive = Annotated[float, BeforeValidator(_real(0, open_low=True))]
NotNegative = Annotated[float, BeforeValidator(_real(0))]
Fraction = Annotated[float, BeforeValidator(_real(0, 1))]
Imbalance = Annotated[float, BeforeValidator(_real(1, 1e6))]
Oversubscription = Annotated[float, BeforeValidator(_real(1, 1e6))]
Probability = Annotated[float, BeforeValidator(_real(0, 0.999999))]
Share = Annotated[float, BeforeValidator(_share)]
Bytes = Annotated[float, BeforeValidator(_quantity("bytes"))]
Bandwidth = Annotated[float, BeforeValidator(_quantity("bandwidth"))]
Seconds = Annotated[float, BeforeValidator(_quantity("time"))]
Latency = Annotated[float, BeforeValidator(_quantity("time", zero=True))]
Watts = Annotated[float, BeforeValidator(_quantity("power"))]
FlopRate = Annotated[float, BeforeValidator(_quantity("flops"))]
Month = Annotated[str, BeforeValidator(_month)]
Order = Annotated[tuple[str, ...], BeforeValidator(_order)]
Text = Annotated[StrictStr, Field(min_length=1, max_length=4096)]


class Section(BaseModel):
    """A mapping whose keys are all known."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class SlidingWindowSection(Section):
    size: SequenceLength
    every: Layers | None = None
    local_per_global: Layers | None = None

    @model_validator(mode="after")
    def _one_rhythm(self) -> SlidingWindowSection:
        if (self.every is None) == (self.local_per_global is None):
            raise refuse("exactly one of every and local_per_global is due", "write {size: 4096, every: 1} for all layers")
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


def _shape(value: object) -> str:
    return "name" if isinstance(value, str) else "mapping"


def _name_or_mapping(value: object) -> object:
    if not isinstance(value, (str, Mapping)) or value == "":
        raise refuse(f"a name or a mapping is due, not {_kind(value)}", "write a catalog name or the fields themselves")
    return value


class ClusterSection(Section):
    accelerator: Annotated[str | dict[str, Any], BeforeValidator(_name_or_mapping)]
    num_accelerators: Degree
    accelerators_per_node: Degree | None = None
    scale_up: Annotated[ScaleUpSection, BeforeValidator(_nothing_is_empty)] = ScaleUpSection()
    scale_out: Annotated[ScaleOutSection, BeforeValidator(_nothing_is_empty)] = ScaleOutSection()
    host: Annotated[HostSection, BeforeValidator(_nothing_is_empty)] = HostSection()
    power_cap: Watts | None = None
    hbm_capacity: Bytes | None = None
    hbm_bandwidth: Bandwidth | None = None
    price: NotNegative | None = None


class SoftwareSection(Section):
    framework: Framework = "megatron-core"
    version: Text | None = None
    date: Month | None = None
    attention: AttentionBackend | Literal["auto"] = "auto"
    compiled: StrictBool | None = None
    cuda_graphs: CudaGraphs = "none"
    cuda_graph_scope: Annotated[tuple[GraphScope, ...], BeforeValidator(_listed)] | None = None
    transformer_impl: Literal["te", "local"] = "te"
    allocator: Literal["default", "expandable_segments"] = "default"


class ParallelSection(Section):
    tp: Degree = 1
    cp: Degree = 1
    pp: Degree = 1
    ep: Degree = 1
    etp: Degree | None = None
    dp: Degree | None = None
    sequence_parallel: StrictBool | None = None
    order: Order | None = None


class PipelineSection(Section):
    schedule: Schedule | None = None
    virtual_stages: Degree | None = None
    layers_per_stage: Annotated[tuple[SomeLayers, ...], BeforeValidator(_listed)] | None = None
    first_stage_layers: SomeLayers | None = None
    last_stage_layers: SomeLayers | None = None
    layout: Text | None = None
    count_embedding: StrictBool = False
    count_head: StrictBool = False
    microbatch_group_size: Degree | None = None
    orders: Annotated[Text | tuple[Row, ...], BeforeValidator(_rows)] | None = None


class BatchSection(Section):
    micro_batch_size: Sequences
    global_batch_size: Sequences
    sequence_length: SequenceLength


class ShardingSection(Section):
    strategy: Strategy | None = None
    shard_size: Degree | None = None
    implementation: Literal["fsdp1", "fsdp2", "megatron-fsdp", "deepspeed"] | None = None


class PrecisionSection(Section):
    compute: Compute = "bf16"
    params: Storage | None = None
    grads: Storage | None = None
    grad_reduce: Storage | None = None
    master: Storage | None = None
    optimizer_state: Storage | None = None
    first_last_layers_bf16: SomeLayers = 0
    attention: Storage | None = None


class RecomputeSection(Section):
    policy: RecomputePolicy = "none"
    num_layers: SomeLayers | None = None
    layers: Annotated[tuple[SomeLayers, ...], BeforeValidator(_listed)] | None = None
    modules: Annotated[tuple[RecomputeModule, ...], BeforeValidator(_listed)] | None = None


class MoePlanSection(Section):
    dispatcher: Dispatcher | None = None
    routing: Literal["balanced", "skewed"] = "balanced"
    imbalance: Imbalance | None = None
    capacity_factor: Positive | None = None
    grouped_gemm: StrictBool = True
    permute_fusion: StrictBool | None = None
    sync_free: StrictBool = False


class OverlapSection(Section):
    grad_reduce: StrictBool | None = None
    param_gather: StrictBool | None = None
    tp_comm: StrictBool | None = None
    cp_comm: StrictBool | None = None
    ep_comm: StrictBool | None = None
    p2p: StrictBool | None = None
    delay_wgrad: StrictBool | None = None


class ContextParallelSection(Section):
    kind: ContextParallelKind | None = None
    ulysses_size: Degree | None = None
    load_balanced: StrictBool | None = None


class OffloadSection(Section):
    activations: Share = 0.0
    modules: Annotated[tuple[RecomputeModule, ...], BeforeValidator(_listed)] | None = None
    optimizer: Literal["none", "cpu"] = "none"


class LossSection(Section):
    fused_cross_entropy: StrictBool | None = None
    implementation: Literal["native", "te", "liger", "chunked"] | None = None
    vocab_parallel: StrictBool | None = None
    logits_dtype: Storage | None = None


class DropoutSection(Section):
    hidden: Probability = 0.0
    attention: Probability = 0.0


class PlanSection(Section):
    parallel: Annotated[ParallelSection, BeforeValidator(_nothing_is_empty)] = ParallelSection()
    pipeline: Annotated[PipelineSection, BeforeValidator(_nothing_is_empty)] = PipelineSection()
    batch: BatchSection
    sharding: Annotated[ShardingSection, BeforeValidator(_nothing_is_empty)] = ShardingSection()
    precision: Annotated[PrecisionSection, BeforeValidator(_nothing_is_empty)] = PrecisionSection()
    optimizer: Literal["adamw", "adam", "sgd", "muon", "adafactor", "adam8bit"] | None = None
    recompute: Annotated[RecomputeSection, BeforeValidator(_nothing_is_empty)] = RecomputeSection()
    moe: Annotated[MoePlanSection, BeforeValidator(_nothing_is_empty)] = MoePlanSection()
    overlap: Annotated[OverlapSection, BeforeValidator(_nothing_is_empty)] = OverlapSection()
    context_parallel: Annotated[ContextParallelSection, BeforeValidator(_nothing_is_empty)] = ContextParallelSection()
    offload: Annotated[OffloadSection, BeforeValidator(_nothing_is_empty)] = OffloadSection()
    loss: Annotated[LossSection, BeforeValidator(_nothing_is_empty)] = LossSection()
    dropout: Annotated[DropoutSection, BeforeValidator(_nothing_is_empty)] = DropoutSection()


class RunSection(Section):
    tokens: Positive | None = None
    checkpoint_interval: Seconds | None = None
    mtbf_per_accelerator: Seconds | None = None
    restart_time: Latency | None = None


class JobFile(Section):
    """A job file, version 1."""

    model: Annotated[
        Annotated[Text, Tag("<name>")] | Annotated[ModelSection, Tag("<mapping>")],
        Discriminator(lambda value: f"<{_shape(value)}>"),
        BeforeValidator(_name_or_mapping),
    ]
    cluster: ClusterSection
    software: Annotated[SoftwareSection, BeforeValidator(_nothing_is_empty)] = SoftwareSection()
    plan: PlanSection
    run: Annotated[RunSection, BeforeValidator(_nothing_is_empty)] = RunSection()


class MeasuredSection(Section):
    step_time: Seconds | None = None
    tokens_per_second_per_accelerator: Positive | None = None
    model_flops_per_second_per_accelerator: FlopRate | None = None
    mfu: Fraction | None = None
    peak_memory: Bytes | None = None
    peak_memory_per_stage: Annotated[tuple[Bytes, ...], BeforeValidator(_listed)] | None = None
    memory_reading_error: Fraction | None = None
    derived: StrictBool = False


class SourceSection(Section):
    title: Text
    url: Text | None = None
    where: Text | None = None
    date: Month | None = None


Lines = Annotated[tuple[StrictStr, ...], BeforeValidator(_listed)]


class RecordFile(Section):
    """A ground-truth record; its job is read separately, so that equal parts are read once."""

    id: Text
    job: dict[str, Any]
    measured: MeasuredSection
    bar: Bar
    source: SourceSection
    outcome: Literal["ran", "oom"] = "ran"
    memory_kind: MemoryKind = "unknown"
    memory_rank: MemoryRank = "unknown"
    memory_bar: Bar | None = None
    flops_convention: FlopsConvention = "unknown"
    series: Text | None = None
    assumed: Lines = ()
    notes: Lines = ()

    @model_validator(mode="after")
    def _says_something(self) -> RecordFile:
        empty = not self.measured.model_fields_set - {"derived", "memory_reading_error"}
        if empty and self.bar != "fits" and self.outcome != "oom":
            raise refuse("a measured value is due unless bar is fits or outcome is oom", "add one, or write bar: fits")
        return self


SECTIONS: dict[str, type[Section]] = {"job": JobFile, "record": RecordFile}
FRAMEWORKS: tuple[str, ...] = get_args(Framework)


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
