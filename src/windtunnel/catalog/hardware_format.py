"""An accelerator as a file or a job spells it: strict sections, and its JSON schema."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StrictBool, StrictStr, WithJsonSchema, model_validator

from windtunnel import units
from windtunnel.catalog import format as spelled
from windtunnel.catalog.format import (
    Bandwidth,
    Bytes,
    Degree,
    FlopRate,
    Latency,
    NotNegative,
    Oversubscription,
    Section,
    Text,
    Watts,
    listed,
    refuse,
)
from windtunnel.job.cluster import ScaleUpKind


def _hertz(value: object) -> float:
    try:
        return units.parse(value, "frequency")
    except units.UnitError as error:
        raise refuse(error.rule, error.remedy) from None


def _efficiency(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 1:
        raise refuse("a share of the peak is due, above 0 and at most 1", "write it like 0.62")
    return float(value)


_FREQUENCY = {"type": "string", "description": "a number and one of MHz, GHz", "examples": ["1830 MHz"]}
Hertz = Annotated[float, BeforeValidator(_hertz), WithJsonSchema(_FREQUENCY)]
Efficiency = Annotated[
    float, BeforeValidator(_efficiency), WithJsonSchema({"type": "number", "exclusiveMinimum": 0, "maximum": 1})
]


class PeaksSection(Section):
    """Dense peak rates; a dtype left out is one the part cannot multiply in."""

    fp32: FlopRate | None = None
    tf32: FlopRate | None = None
    fp16: FlopRate | None = None
    bf16: FlopRate | None = None
    fp8: FlopRate | None = None
    fp6: FlopRate | None = None
    fp4: FlopRate | None = None
    int8: FlopRate | None = None


class GemmSection(Section):
    """Sustained share of the dense peak by recipe; one left out runs at the share of the next wider one given."""

    bf16: Efficiency | None = None
    fp8: Efficiency | None = None
    mxfp8: Efficiency | None = None
    fp8_blockwise: Efficiency | None = None
    nvfp4: Efficiency | None = None
    launch: Latency | None = None


class AttentionSection(Section):
    """Fused attention of one kernel generation."""

    kernel: Literal["flash2", "flash3", "te-fused", "sdpa", "aiter", "splash"]
    forward: Efficiency
    backward: Efficiency
    half_length: Degree


class FitSection(Section):
    """seconds = latency + root · √bytes + bytes · (n−1)/n / bandwidth, twice the last term for all_reduce."""

    op: Literal["all_gather", "reduce_scatter", "all_reduce", "all_to_all"]
    ranks: Degree
    latency: Latency
    root: NotNegative = 0.0
    bandwidth: Bandwidth


class ScaleUpFields(Section):
    kind: ScaleUpKind | None = None
    domain_size: Degree | None = None
    bandwidth: Bandwidth | None = None
    latency: Latency | None = None
    fits: Annotated[tuple[FitSection, ...], BeforeValidator(listed)] | None = None


class SystemSection(Section):
    """The usual node of an accelerator and what joins nodes."""

    accelerators_per_node: Degree | None = None
    scale_out: spelled.ScaleOutSection | None = None
    host: spelled.HostSection | None = None


Attention = Annotated[tuple[AttentionSection, ...], BeforeValidator(listed), Field(min_length=1)]


class SetPointSection(Section):
    """Measured efficiencies at a power cap."""

    power: Watts
    gemm: GemmSection
    attention: Attention
    memory_bound: Efficiency


class CustomAccelerator(Section):
    """An accelerator in a job: `base` names a catalog part whose fields these replace; without it all are required
    but name, clock, power and system."""

    base: Text | None = None
    name: Text | None = None
    vendor: Text | None = None
    architecture: Text | None = None
    peaks: PeaksSection | None = None
    compute_units: Degree | None = None
    clock: Hertz | None = None
    hbm_capacity: Bytes | None = None
    hbm_bandwidth: Bandwidth | None = None
    power: Watts | None = None
    scale_up: ScaleUpFields | None = None
    system: SystemSection | None = None
    gemm: GemmSection | None = None
    attention: Attention | None = None
    memory_bound: Efficiency | None = None


class ScaleUpSection(Section):
    kind: ScaleUpKind
    domain_size: Degree
    bandwidth: Bandwidth
    latency: Latency
    fits: Annotated[tuple[FitSection, ...], BeforeValidator(listed)] = ()


class ScaleOutSection(Section):
    kind: Literal["infiniband", "roce", "ethernet", "efa", "ici", "none"]
    bandwidth: Bandwidth
    latency: Latency
    nics_per_node: Degree | None = None
    oversubscription: Oversubscription = 1.0


class HostSection(Section):
    memory: Bytes
    pcie_bandwidth: Bandwidth
    kind: Literal["x86", "grace"]


class FullSystemSection(Section):
    accelerators_per_node: Degree
    scale_out: ScaleOutSection
    host: HostSection


class FullGemmSection(GemmSection):
    bf16: Efficiency
    launch: Latency


class AcceleratorFile(Section):
    """A complete accelerator: a file of the catalog, or a job's own once its base is filled in."""

    name: Text
    vendor: Text
    architecture: Text
    measured: StrictBool
    peaks: PeaksSection
    compute_units: Degree
    clock: Hertz | None = None
    hbm_capacity: Bytes
    capacity_status: Literal["driver", "estimated", "given"]
    hbm_bandwidth: Bandwidth
    power: Watts | None = None
    scale_up: ScaleUpSection
    system: FullSystemSection
    gemm: FullGemmSection
    attention: Attention
    memory_bound: Efficiency
    set_points: Annotated[tuple[SetPointSection, ...], BeforeValidator(listed)] = ()
    source: dict[StrictStr, StrictStr]

    @model_validator(mode="after")
    def _can_train(self) -> AcceleratorFile:
        if not any((self.peaks.bf16, self.peaks.fp16, self.peaks.fp32)):
            raise refuse("peaks must hold bf16, fp16 or fp32", "add the rate training runs in")
        return self


def schema() -> dict[str, Any]:
    """JSON schema of an accelerator as a job may write it."""
    return CustomAccelerator.model_json_schema()
