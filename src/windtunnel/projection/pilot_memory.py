"""Memory anchored on a measurement: what a pilot's peak holds beyond what is counted, carried to a target."""

from __future__ import annotations

from dataclasses import dataclass

from windtunnel.projection.result import Memory

MARGIN = 0.05
"""Share of both residuals the upper bound adds: they are one reading of one schedule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotPeak:
    """Peak bytes of a pilot's step as its allocator counts them."""

    allocated: float
    reserved: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Residuals:
    """Signed bytes no op shows: alive beyond what is counted, and held by the allocator beyond what is alive."""

    live_excess: float
    framework_overhead: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchoredMemory:
    """Device bytes of the worst stage: the point, and an upper bound."""

    stage: int
    point: float
    upper: float


def residuals(pilot: PilotPeak, projected: Memory) -> Residuals:
    """What the pilot measured against what its own projection explains. Over-counting shows as a negative excess."""
    peak = projected.peak
    return Residuals(
        live_excess=pilot.allocated - peak.allocated,
        framework_overhead=pilot.reserved - pilot.allocated,
    )


def anchored_memory(target: Memory, found: Residuals) -> AnchoredMemory:
    """Allocated bytes of the target as counted, both residuals, and what is outside of the allocator."""
    peak = target.peak
    extra = found.live_excess + found.framework_overhead
    point = peak.allocated + extra + peak.overhead
    widened = MARGIN * (abs(found.live_excess) + abs(found.framework_overhead))
    return AnchoredMemory(stage=peak.stage, point=point, upper=point + widened)
