"""What a projection answers, as values. Seconds, bytes and FLOP; see the contract of ``project --json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from windtunnel.job.job import Job
from windtunnel.memory.breakdown import MemoryBreakdown
from windtunnel.step.parts import Parts
from windtunnel.step.step import StepCosts
from windtunnel.step.timeline import Timeline

Verdict = Literal["fits", "borderline", "oom"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlopsPerToken:
    """Model FLOPs of one token, forward and backward, in the four conventions in use."""

    causal_half: float
    full_attention: float
    hardware: float
    six_nd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotMemory:
    """Peak bytes of a pilot's step as its allocator counts them, and what its own projection ``explained``."""

    layers: int
    allocated: float
    reserved: float
    explained: float

    @property
    def live_excess(self) -> float:
        """Bytes alive beyond what is counted; negative where too much was counted."""
        return self.allocated - self.explained

    @property
    def framework_overhead(self) -> float:
        """Bytes the allocator holds beyond what is alive."""
        return self.reserved - self.allocated


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchoredMemory:
    """Device bytes of the worst stage with the residuals of measured pilots: the point, and an upper bound."""

    stage: int
    point: float
    upper: float
    verdict: Verdict
    live_excess: float
    framework_overhead: float
    pilots: tuple[PilotMemory, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Peak bytes of the worst rank and of every stage at its own peak moment.

    ``interval`` holds the device bytes of the worst rank in four runs of five. ``host`` bytes of a rank are offloaded,
    ``host_checkpoint`` what a synchronous save stages there besides. ``anchored``: where pilots were measured.
    """

    verdict: Verdict
    interval: tuple[float, float]
    capacity: float
    stages: tuple[MemoryBreakdown, ...]
    host: float
    host_checkpoint: float
    anchored: AnchoredMemory | None = None

    @property
    def peak(self) -> MemoryBreakdown:
        return max(self.stages, key=lambda stage: stage.device)

    @property
    def headroom(self) -> float:
        return self.capacity - self.peak.device


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    total: int
    active: int
    per_stage: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Shares of seconds by where they come from."""

    measured: float = 0.0
    interpolated: float = 0.0
    anchored: float = 0.0
    simulated: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    stage: int
    term: str
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """One change of the plan and the step time it would give, ``simulated`` of whose seconds only formulas know."""

    changes: tuple[tuple[str, object], ...]
    step_time: float
    peak_device: float
    simulated: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """A value nobody gave: the relative change of step time were it ``otherwise``."""

    path: str
    otherwise: object
    effect: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    binding: tuple[Binding, ...]
    assumptions: tuple[Assumption, ...]
    knobs: tuple[Knob, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncertainty:
    """Intervals that hold the measured value with probability ``level``, in seconds and bytes; None: not known."""

    level: float
    step_time: tuple[float, float] | None = None
    peak_device: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAnswer:
    """``checkpoint_interval`` in seconds is the one the goodput is of: given, or the Young–Daly optimum."""

    days: float | None = None
    goodput: float | None = None
    accelerator_hours: float | None = None
    cost: float | None = None
    checkpoint_interval: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """Memory and throughput of one job. ``time`` sums to ``step_time``; ``timeline`` executed ``costs``.

    ``evidence``: of every part of ``time``, where its seconds come from; empty where all of them are simulated.
    """

    job: Job
    step_time: float
    tokens_per_second: float
    tokens_per_second_per_accelerator: float
    flops_per_token: FlopsPerToken
    model_flops_per_second_per_accelerator: float
    mfu: float
    peak_flops: float
    time: Parts
    hidden_communication: dict[str, float]
    memory: Memory
    parameters: Parameters
    schedule_name: str
    bubble_fraction: float
    num_microbatches: int
    busiest_stage: int
    provenance: Provenance
    costs: StepCosts
    timeline: Timeline
    evidence: Mapping[str, Provenance] = field(default_factory=dict)
    run: RunAnswer | None = None
    explanation: Explanation | None = None
    uncertainty: Uncertainty | None = None
    warnings: tuple[str, ...] = ()
