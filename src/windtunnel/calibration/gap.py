"""What can explain the distance between a measured and a projected step: parts of the step, and constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log

from windtunnel.job.job import Job
from windtunnel.projection.result import Projection
from windtunnel.step.parts import NAMES

STEP = 0.04
"""Change of a constant's logarithm for a derivative."""
LEAST = 0.01
"""Share of the step, or derivative of its logarithm, below which a term explains nothing."""

StepTime = Callable[[Job], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explains:
    """A term that alone would close the gap: its value now and then, None where it cannot; ``spreads``: how many
    spreads of its own a constant would have to move, None for a part of the step, in seconds."""

    term: str
    now: float
    needed: float | None
    spreads: float | None = None


def parts_that_explain(projection: Projection, measured: float) -> tuple[Explains, ...]:
    """Every part of the step worth a percent, with the seconds it would have to take; the smallest change first."""
    gap = measured - projection.step_time
    found = []
    for name in NAMES:
        seconds = getattr(projection.time, name)
        if seconds >= LEAST * projection.step_time:
            found.append(Explains(term=name, now=seconds, needed=seconds + gap if seconds + gap > 0 else None))
    return tuple(
        sorted(found, key=lambda item: float("inf") if item.needed is None else abs(log(item.needed / item.now)))
    )


def constants_that_explain(
    projection: Projection, measured: float, spreads: Mapping[str, float], step_time: StepTime
) -> tuple[Explains, ...]:
    """Every fitted constant the step depends on, with the value that would close the gap to first order; the most
    plausible first."""
    job = projection.job
    gap = log(measured / projection.step_time)
    names = list(spreads)
    found = []
    for name, slope in zip(names, derivatives(job, names, step_time), strict=True):
        if abs(slope) >= LEAST:
            now, move = value_of(job, name), gap / slope
            needed = now * exp(move) if abs(move) < log(FARTHEST) else None
            found.append(Explains(term=name, now=now, needed=needed, spreads=abs(move) / spreads[name]))
    return tuple(sorted(found, key=lambda item: item.spreads or 0.0))


FARTHEST = 10.0
"""Factor on a constant beyond which first order says nothing."""


def derivatives(job: Job, names: Sequence[str], step_time: StepTime) -> list[float]:
    """d log step time / d log constant, one-sided."""
    base = log(step_time(job))
    moved = (replace(job, constants=job.constants.having({name: value_of(job, name) * exp(-STEP)})) for name in names)
    return [(base - log(step_time(other))) / STEP for other in moved]


def value_of(job: Job, name: str) -> float:
    """A constant of the job by ``group.name``."""
    group, _, item = name.partition(".")
    return float(getattr(getattr(job.constants, group), item))
