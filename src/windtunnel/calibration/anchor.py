"""A user's own runs as evidence: what they say about constants, and a factor for the rest, with what is left to doubt.

Errors are log(measured / projected step time). To first order a run's error is a sum: its derivatives by the logarithms
of the constants times how far those are off, a factor that all runs of one software on one accelerator share, and
noise. Each has a spread known from published runs, so the most probable attribution is a least-squares problem.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log, sqrt

import numpy as np

from windtunnel.calibration.gap import StepTime, derivatives, value_of
from windtunnel.calibration.intervals import LEVEL, Spreads
from windtunnel.job.job import Job
from windtunnel.projection.result import Explanation, Projection, Provenance, Uncertainty

NOTICEABLE = 0.005
"""Relative move of a constant below which it explains nothing."""
WITHIN = 1.2816
"""Standard deviations on either side that hold ``LEVEL`` of a normal distribution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """What own runs say about a job: other constants, a factor on the step time, and the spread that is left."""

    runs: int
    values: Mapping[str, float]
    factor: float
    spread: float


def anchor(job: Job, own: Sequence[tuple[Job, float]], spreads: Spreads, step_time: StepTime) -> Anchor:
    """Attribute the errors of ``own`` runs (job and measured seconds) and carry them to ``job``."""
    names = list(spreads.constants)
    start = {name: value_of(job, name) for name in names}
    rows = [derivatives(other, names, step_time) for other, _ in own]
    here = derivatives(job, names, step_time)
    errors = np.array([log(seconds / step_time(other)) for other, seconds in own])
    design = np.column_stack([np.array(rows), np.ones(len(own))])
    prior = np.array([*spreads.constants.values(), spreads.common]) ** 2
    noise = spreads.run**2 * np.ones(len(own))
    gain = prior[:, None] * design.T @ np.linalg.inv(design @ (prior[:, None] * design.T) + np.diag(noise))
    shift = gain @ errors
    left = np.diag(prior) - gain @ design * prior
    row = np.append(here, 1.0)
    values = {name: value * exp(d) for (name, value), d in zip(start.items(), shift[:-1], strict=True)}
    return Anchor(
        runs=len(own),
        values=values,
        factor=exp(float(shift[-1])),
        spread=sqrt(max(float(row @ left @ row), 0.0) + spreads.run**2),
    )


def attributed(job: Job, found: Anchor) -> tuple[tuple[str, float, float], ...]:
    """Constants that the runs move noticeably, with their values before and after, the largest relative move first."""
    moves = [(name, value_of(job, name), value) for name, value in found.values.items()]
    told = [move for move in moves if abs(log(move[2] / move[1])) >= NOTICEABLE]
    return tuple(sorted(told, key=lambda move: -abs(log(move[2] / move[1]))))


def comparable_runs(job: Job, own: Sequence[tuple[Job, float]]) -> list[tuple[Job, float]]:
    """Those of the same framework on the same accelerator: others share no factor with the job."""
    return [
        (other, seconds)
        for other, seconds in own
        if (other.software.framework, other.cluster.accelerator.name)
        == (job.software.framework, job.cluster.accelerator.name)
    ]


def anchored(projection: Projection, found: Anchor) -> Projection:
    """A projection made with the constants of ``found``, times its factor: provenance anchored, its own interval."""
    seconds = projection.step_time * found.factor
    low, high = (seconds * exp(sign * WITHIN * found.spread) for sign in (-1, 1))
    known = projection.uncertainty or Uncertainty(level=LEVEL)
    return replace(
        projection,
        step_time=seconds,
        tokens_per_second=projection.tokens_per_second / found.factor,
        tokens_per_second_per_accelerator=projection.tokens_per_second_per_accelerator / found.factor,
        model_flops_per_second_per_accelerator=projection.model_flops_per_second_per_accelerator / found.factor,
        mfu=projection.mfu / found.factor,
        time=projection.time.scaled(found.factor),
        hidden_communication={k: v * found.factor for k, v in projection.hidden_communication.items()},
        explanation=_with_knobs(projection.explanation, found.factor),
        provenance=Provenance(anchored=1.0, simulated=0.0),
        uncertainty=replace(known, step_time=(low, high)),
    )


def _with_knobs(explanation: Explanation | None, factor: float) -> Explanation | None:
    """The steps that knobs would give share the factor."""
    if explanation is None:
        return None
    return replace(
        explanation, knobs=tuple(replace(knob, step_time=knob.step_time * factor) for knob in explanation.knobs)
    )
