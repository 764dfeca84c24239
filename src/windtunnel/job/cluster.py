"""Accelerators, the tiers that join them, and the cluster built from both. SI units throughout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ScaleUpKind = Literal["nvlink2", "nvlink3", "nvlink4", "nvlink5", "xgmi", "pcie", "ici", "roce", "neuronlink"]
ScaleOutKind = Literal["infiniband", "roce", "ethernet", "efa", "ici", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """Dense peak rates in FLOP/s; None where the part cannot."""

    fp32: float | None = None
    tf32: float | None = None
    fp16: float | None = None
    bf16: float | None = None
    fp8: float | None = None
    fp6: float | None = None
    fp4: float | None = None
    int8: float | None = None

    def of(self, dtype: str) -> float | None:
        """The rate of a dtype, None where the part cannot or the name is no dtype of this table."""
        rates = {
            "fp32": self.fp32, "tf32": self.tf32, "fp16": self.fp16, "bf16": self.bf16,
            "fp8": self.fp8, "fp6": self.fp6, "fp4": self.fp4, "int8": self.int8,
        }  # fmt: skip
        return rates.get(dtype)

    @property
    def half(self) -> float:
        """The rate of 16-bit training: bf16, or fp16 on parts older than it."""
        return self.bf16 or self.fp16 or self.fp32 or 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmEfficiency:
    """Sustained share of the dense peak a large GEMM reaches, by recipe, and the fixed seconds of one GEMM."""

    bf16: float
    fp8: float
    mxfp8: float
    fp8_blockwise: float
    nvfp4: float
    launch: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionEfficiency:
    """Fused attention of one kernel generation: share of the bf16 peak, and the sequence length that halves it."""

    kernel: str
    forward: float
    backward: float
    half_length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveFit:
    """seconds = latency + root · √bytes + bytes · (n−1)/n / bandwidth for one collective of ``ranks`` members."""

    op: Literal["all_gather", "reduce_scatter", "all_reduce", "all_to_all"]
    ranks: int
    latency: float
    root: float
    bandwidth: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleUp:
    """The inner fabric: ``bandwidth`` in bytes/s, one direction, per accelerator."""

    kind: ScaleUpKind
    domain_size: int
    bandwidth: float
    latency: float
    fits: tuple[CollectiveFit, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleOut:
    """The outer fabric: ``bandwidth`` in bytes/s, one direction, per accelerator."""

    kind: ScaleOutKind
    bandwidth: float
    latency: float
    nics_per_node: int | None = None
    oversubscription: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    memory: float
    """Bytes of a node."""
    pcie_bandwidth: float
    """Bytes/s between one accelerator and its host, one direction."""
    kind: Literal["x86", "grace"] = "x86"


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One device as training sees it."""

    name: str
    vendor: str
    architecture: str
    peaks: Peaks
    compute_units: int
    hbm_capacity: float
    """Bytes the driver reports as usable, not the label."""
    hbm_bandwidth: float
    power: float | None
    gemm: GemmEfficiency
    attention: tuple[AttentionEfficiency, ...]
    memory_bound: float
    """Share of nominal HBM bandwidth a well-written streaming kernel reaches."""
    measured: bool = True
    """Whether training runs of this part are among the evidence."""

    @property
    def is_tpu(self) -> bool:
        return self.vendor == "google"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    accelerator: Accelerator
    num_accelerators: int
    accelerators_per_node: int
    scale_up: ScaleUp
    scale_out: ScaleOut
    host: Host
    power_cap: float | None = None
    price: float | None = None
