"""Fits constants to logarithmic errors of projections: robust Gauss-Newton in the logarithms of the constants.

The error of a record is log(measured step time / projected step time). The objective is the weighted mean of |error|,
each clipped at ``CLIP``: a record that resists everything pulls at nothing. Deterministic: no random start, no seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Trial = tuple[Mapping[str, float], Mask | None]
"""A set of constants, and the records it is wanted for; None: all."""
Evaluate = Callable[[Sequence[Trial]], Sequence[Floats]]
"""Errors of every record for each of several trials; NaN where a trial does not want them."""

CLIP = 0.5
"""Error beyond which a record no longer counts for more."""
SMOOTH = 0.03
"""Error below which |error| is squared: runs of one job differ by as much."""
PRIOR = 0.1
"""Weight of the squared logarithmic distance from neutral: decides only what no record decides."""
STEP = 0.04
"""Change of the logarithm for a derivative."""
LONGEST = 0.4
"""Longest step of a logarithm in one iteration."""
SHARES = (1.0, 0.5, 0.2, 0.05)
"""Of a step, tried at once: where errors bend, less of it is better."""
SMALLEST_GAIN = 1e-5
TINY = 1e-30
MOVES = 1e-3
"""Derivative of a record's error below which it does not depend on a constant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Free:
    """A constant to fit. ``neutral`` is its value where nothing is known, within ``low`` and ``high``."""

    name: str
    start: float
    neutral: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Fitted values, the errors of every record there, their derivatives by each logarithm (records × constants)."""

    values: dict[str, float]
    errors: Floats
    jacobian: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Refitted:
    """A constant after a refit; see ``catalog.constants.Fitted``. ``refused``: it is neutral, for it did not help."""

    name: str
    value: float
    kind: str
    on: tuple[str, ...]
    records: int
    residual: float
    range: tuple[float, float]
    helps: float
    error: float
    better: int
    worse: int
    refused: bool


def fit(
    evaluate: Evaluate,
    free: Sequence[Free],
    weights: Floats,
    unseen: Mapping[str, Mask],
    start: Fit,
    iterations: int = 3,
) -> Fit:
    """The constants that minimise the objective, from ``start`` on. ``unseen``: records that may not speak for one."""
    best = start
    for _ in range(iterations):
        step = solve(best, free, weights, unseen)
        tried = [moved(best.values, free, share * step) for share in SHARES]
        found = [objective(errors, weights) for errors in evaluate([(values, None) for values in tried])]
        index = int(np.argmin(found))
        if found[index] > objective(best.errors, weights) - SMALLEST_GAIN:
            break
        best = linearise(evaluate, free, tried[index], best)
    return best


def objective(errors: Floats, weights: Floats) -> float:
    """Weighted mean of the clipped sizes of the errors."""
    return float(weights @ np.minimum(np.abs(errors), CLIP) / weights.sum())


def linearise(evaluate: Evaluate, free: Sequence[Free], values: Mapping[str, float], near: Fit | None = None) -> Fit:
    """Errors and one-sided derivatives at ``values``, away from the nearer bound.

    A record that a constant does not move at ``near``, with the same constants, is not projected again for it.
    """
    steps = [STEP if values[c.name] * exp(STEP) <= c.high else -STEP for c in free]
    varied = [{**values, c.name: values[c.name] * exp(step)} for c, step in zip(free, steps, strict=True)]
    here, *there = evaluate([(values, None), *[(v, moved_by(near, i)) for i, v in enumerate(varied)]])
    columns = [np.nan_to_num(errors - here) / step for errors, step in zip(there, steps, strict=True)]
    return Fit(values=dict(values), errors=here, jacobian=np.stack(columns, axis=1))


def moved_by(at: Fit | None, index: int) -> Mask | None:
    """The records that a constant moves at a fit; None where there is none: all."""
    return None if at is None else np.abs(at.jacobian[:, index]) > 0


def solve(at: Fit, free: Sequence[Free], weights: Floats, unseen: Mapping[str, Mask]) -> Floats:
    """The step of each logarithm that minimises the linearised objective within bounds: reweighted least squares."""
    jacobian = at.jacobian.copy()
    for index, constant in enumerate(free):
        if constant.name in unseen:
            jacobian[unseen[constant.name], index] = 0.0
    logs = np.array([log(at.values[c.name]) for c in free])
    away = logs - np.array([log(c.neutral) for c in free])
    low = np.maximum(np.array([log(c.low) for c in free]) - logs, -LONGEST)
    high = np.minimum(np.array([log(c.high) for c in free]) - logs, LONGEST)
    step = np.zeros(len(free))
    for _ in range(40):
        sizes = np.abs(at.errors + jacobian @ step)
        pull = weights * np.where(sizes > CLIP, 0.0, 1 / np.maximum(sizes, SMOOTH))
        following = _bounded(jacobian, at.errors, pull, away, low, high)
        if np.allclose(following, step, rtol=0, atol=1e-5):
            return following
        step = following
    return step


def _bounded(jacobian: Floats, errors: Floats, pull: Floats, away: Floats, low: Floats, high: Floats) -> Floats:
    """Weighted least squares with the prior; what leaves its bounds is held there and the rest solved again."""
    step = np.zeros(len(away))
    loose = np.ones(len(away), dtype=bool)
    while loose.any():
        part = jacobian[:, loose]
        held = errors + jacobian[:, ~loose] @ step[~loose]
        matrix = part.T @ (pull[:, None] * part) + PRIOR * np.eye(int(loose.sum()))
        step[loose] = np.linalg.solve(matrix, -part.T @ (pull * held) - PRIOR * away[loose])
        outside = loose & ((step < low) | (step > high))
        if not outside.any():
            break
        step = np.clip(step, low, high)
        loose &= ~outside
    return step


def moved(values: Mapping[str, float], free: Sequence[Free], step: Floats) -> dict[str, float]:
    """Values of ``free`` after a step of their logarithms, within bounds."""
    return {c.name: min(max(values[c.name] * exp(d), c.low), c.high) for c, d in zip(free, step, strict=True)}


def without(at: Fit, free: Sequence[Free], weights: Floats, unseen: Mapping[str, Mask], out: Mask) -> dict[str, float]:
    """The constants as the other records want them: refitted from ``at`` with the records ``out`` left out.

    One that moves no other record is neutral.
    """
    kept = np.where(out, 0.0, weights)
    values = moved(at.values, free, solve(at, free, kept, unseen))
    speaks = heard(at, free, kept, unseen)
    return {c.name: values[c.name] if speaks[:, index].any() else c.neutral for index, c in enumerate(free)}


def moves(at: Fit, index: int) -> Mask:
    """The records that depend on a constant."""
    return np.abs(at.jacobian[:, index]) > MOVES


def heard(at: Fit, free: Sequence[Free], weights: Floats, unseen: Mapping[str, Mask]) -> Mask:
    """Which records (rows) speak for which constants (columns)."""
    speaks = (np.abs(at.jacobian) > MOVES) & (weights > 0)[:, None]
    for index, constant in enumerate(free):
        if constant.name in unseen:
            speaks[unseen[constant.name], index] = False
    return speaks


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """What a constant does to runs the fit has not seen: by how much the objective is smaller with it, the standard
    error of that over groups of runs, and how many groups it makes better and worse."""

    pooled: float
    error: float
    better: int
    worse: int

    @property
    def helps(self) -> bool:
        """Cross-validation by source: the model whose left-out runs are better; of equals the one without."""
        return self.pooled > SMALLEST_GAIN


def paired(without: Floats, with_it: Floats, weights: Floats, groups: Sequence[Mask]) -> Gain:
    """The gain from errors of the same runs without and with a constant; its error by leaving out a group in turn."""
    held = [np.where(out, weights, 0.0) for out in groups]
    total = np.array([weight.sum() for weight in held])
    worth = np.minimum(np.abs(without), CLIP) - np.minimum(np.abs(with_it), CLIP)
    gained = np.array([float(weight @ worth) for weight in held])
    n = len(groups)
    pooled = float(gained.sum() / max(total.sum(), TINY))
    others = (gained.sum() - gained) / np.maximum(total.sum() - total, TINY)
    each = gained / np.maximum(total, TINY)
    return Gain(
        pooled=pooled,
        error=float(np.sqrt((n - 1) / n * ((others - others.mean()) ** 2).sum())) if n > 1 else 0.0,
        better=int((each > SMALLEST_GAIN).sum()),
        worse=int((each < -SMALLEST_GAIN).sum()),
    )


def gain(
    at: Fit,
    free: Sequence[Free],
    index: int,
    neutral: Floats,
    weights: Floats,
    unseen: Mapping[str, Mask],
    groups: Sequence[Mask],
) -> Gain:
    """What a constant does to left-out records, against it neutral and the rest refitted.

    ``neutral``: errors with the constant neutral. The derivatives at the fit serve for the refits.
    """
    others = [constant for i, constant in enumerate(free) if i != index]
    fixed = replace(at, errors=neutral, jacobian=np.delete(at.jacobian, index, axis=1))
    without_it = _left_out(fixed, others, weights, unseen, groups)
    return paired(without_it, _left_out(at, free, weights, unseen, groups), weights, groups)


def _left_out(
    at: Fit, free: Sequence[Free], weights: Floats, unseen: Mapping[str, Mask], groups: Sequence[Mask]
) -> Floats:
    """Errors of all records, each predicted with its own group left out (linearised)."""
    errors = at.errors.copy()
    for out in groups:
        step = solve(at, free, np.where(out, 0.0, weights), unseen)
        errors[out] = at.errors[out] + at.jacobian[out] @ step
    return errors
