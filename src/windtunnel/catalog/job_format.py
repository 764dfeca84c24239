"""The job file, version 1, and the ground-truth record: every key, closed list and range."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, StrictBool, StrictStr, Tag, WithJsonSchema, model_validator

from windtunnel.catalog.format import (
    Bytes,
    ClusterSection,
    Degree,
    FlopRate,
    Fraction,
    Imbalance,
    InlineModelSection,
    Latency,
    Month,
    Positive,
    Probability,
    Seconds,
    Section,
    SequenceLength,
    Sequences,
    SomeLayers,
    Text,
    kind_of,
    listed,
    name_or_mapping,
    nothing_is_empty,
    real,
    refuse,
)
from windtunnel.dtypes import Compute, Storage
from windtunnel.job.plan import (
    ContextParallelKind,
    Dispatcher,
    OffloadModule,
    RecomputeModule,
    RecomputePolicy,
    Schedule,
    Strategy,
)
from windtunnel.job.record import Bar, FlopsConvention, MemoryKind, MemoryRank
from windtunnel.job.software import AttentionBackend, CudaGraphs, Framework, GraphScope

GROUPS = ("tp", "cp", "ep", "dp", "pp")


def _rows(value: object) -> object:
    """The rows of a custom schedule written in place; text names a file."""
    if isinstance(value, list):
        return tuple(tuple(row) if isinstance(row, list) else row for row in value)
    if not isinstance(value, (str, tuple)):
        raise refuse(f"a file name or a list of rows is due, not {kind_of(value)}", "name a file with orders")
    return value


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
    return real(0, 1)(value)


def _shape(value: object) -> str:
    return "name" if isinstance(value, str) else "mapping"


Row = tuple[StrictStr, ...]
Order = Annotated[
    tuple[str, ...], BeforeValidator(_order), WithJsonSchema({"type": "string", "examples": ["-".join(GROUPS)]})
]
Share = Annotated[
    float,
    BeforeValidator(_share),
    WithJsonSchema({"anyOf": [{"enum": ["none", "full"]}, {"type": "number", "minimum": 0, "maximum": 1}]}),
]


class SoftwareSection(Section):
    framework: Framework = "megatron-core"
    version: Text | None = None
    date: Month | None = None
    attention: AttentionBackend | Literal["auto"] = "auto"
    compiled: StrictBool | None = None
    cuda_graphs: CudaGraphs = "none"
    cuda_graph_scope: Annotated[tuple[GraphScope, ...], BeforeValidator(listed)] | None = None
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
    layers_per_stage: Annotated[tuple[SomeLayers, ...], BeforeValidator(listed)] | None = None
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
    activation_input: Storage | None = None


class RecomputeSection(Section):
    policy: RecomputePolicy = "none"
    num_layers: SomeLayers | None = None
    layers: Annotated[tuple[SomeLayers, ...], BeforeValidator(listed)] | None = None
    modules: Annotated[tuple[RecomputeModule, ...], BeforeValidator(listed)] | None = None


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
    modules: Annotated[tuple[OffloadModule, ...], BeforeValidator(listed)] | None = None
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
    parallel: Annotated[ParallelSection, BeforeValidator(nothing_is_empty)] = ParallelSection()
    pipeline: Annotated[PipelineSection, BeforeValidator(nothing_is_empty)] = PipelineSection()
    batch: BatchSection
    sharding: Annotated[ShardingSection, BeforeValidator(nothing_is_empty)] = ShardingSection()
    precision: Annotated[PrecisionSection, BeforeValidator(nothing_is_empty)] = PrecisionSection()
    optimizer: Literal["adamw", "adam", "sgd", "muon", "adafactor", "adam8bit"] | None = None
    recompute: Annotated[RecomputeSection, BeforeValidator(nothing_is_empty)] = RecomputeSection()
    moe: Annotated[MoePlanSection, BeforeValidator(nothing_is_empty)] = MoePlanSection()
    overlap: Annotated[OverlapSection, BeforeValidator(nothing_is_empty)] = OverlapSection()
    context_parallel: Annotated[ContextParallelSection, BeforeValidator(nothing_is_empty)] = ContextParallelSection()
    offload: Annotated[OffloadSection, BeforeValidator(nothing_is_empty)] = OffloadSection()
    loss: Annotated[LossSection, BeforeValidator(nothing_is_empty)] = LossSection()
    dropout: Annotated[DropoutSection, BeforeValidator(nothing_is_empty)] = DropoutSection()


class RunSection(Section):
    tokens: Positive | None = None
    checkpoint_interval: Seconds | None = None
    mtbf_per_accelerator: Seconds | None = None
    restart_time: Latency | None = None


class JobFile(Section):
    """A job file, version 1."""

    model: Annotated[
        Annotated[Text, Tag("<name>")] | Annotated[InlineModelSection, Tag("<mapping>")],
        Discriminator(lambda value: f"<{_shape(value)}>"),
        BeforeValidator(name_or_mapping),
    ]
    cluster: ClusterSection
    software: Annotated[SoftwareSection, BeforeValidator(nothing_is_empty)] = SoftwareSection()
    plan: PlanSection
    run: Annotated[RunSection, BeforeValidator(nothing_is_empty)] = RunSection()


class MeasuredSection(Section):
    step_time: Seconds | None = None
    tokens_per_second_per_accelerator: Positive | None = None
    model_flops_per_second_per_accelerator: FlopRate | None = None
    mfu: Fraction | None = None
    peak_memory: Bytes | None = None
    peak_memory_per_stage: Annotated[tuple[Bytes, ...], BeforeValidator(listed)] | None = None
    memory_reading_error: Fraction | None = None
    derived: StrictBool = False


class SourceSection(Section):
    title: Text
    url: Text | None = None
    where: Text | None = None
    date: Month | None = None


Lines = Annotated[tuple[StrictStr, ...], BeforeValidator(listed)]


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
