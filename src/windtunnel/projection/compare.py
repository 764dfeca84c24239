"""What makes two projections differ: their parts, term by term."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from windtunnel.projection.result import Projection
from windtunnel.step.parts import NAMES


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """From one projection to another: ``terms`` (seconds by part, zero ones left out) sum to ``step_time``."""

    from_index: int
    to_index: int
    step_time: float
    terms: dict[str, float]
    peak_device: float


def compare(projections: Sequence[Projection]) -> tuple[Delta, ...]:
    """Deltas from the first projection to each other one, in order."""
    return tuple(_delta(projections[0], other, index) for index, other in enumerate(projections[1:], start=1))


def _delta(base: Projection, other: Projection, index: int) -> Delta:
    terms = {name: getattr(other.time, name) - getattr(base.time, name) for name in NAMES}
    return Delta(
        from_index=0,
        to_index=index,
        step_time=other.step_time - base.step_time,
        terms={name: seconds for name, seconds in terms.items() if seconds},
        peak_device=other.memory.peak.device - base.memory.peak.device,
    )
