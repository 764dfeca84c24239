"""A ground-truth record: a job that was run, and what was measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from windtunnel.job.job import Job

Bar = Literal["tight", "normal", "loose", "trend", "fits"]
TOLERANCE: dict[str, float] = {"tight": 0.05, "normal": 0.10, "loose": 0.15}
MemoryKind = Literal["allocated", "reserved", "device", "unknown"]
MemoryRank = Literal["max", "first", "last", "unknown"]
FlopsConvention = Literal["causal_half", "full_attention", "hardware", "6nd", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    step_time: float | None = None
    tokens_per_second_per_accelerator: float | None = None
    model_flops_per_second_per_accelerator: float | None = None
    mfu: float | None = None
    peak_memory: float | None = None
    peak_memory_per_stage: tuple[float, ...] | None = None
    memory_reading_error: float | None = None
    derived: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    title: str
    url: str | None = None
    where: str | None = None
    date: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """``given`` is the job as the file spells it (nested mapping, SI values), for grouping by a job path."""

    id: str
    job: Job
    given: dict[str, object]
    measured: Measured
    bar: Bar
    source: Source
    file: str
    outcome: Literal["ran", "oom"] = "ran"
    memory_kind: MemoryKind = "unknown"
    memory_rank: MemoryRank = "unknown"
    memory_bar: Bar | None = None
    flops_convention: FlopsConvention = "unknown"
    series: str | None = None
    assumed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
