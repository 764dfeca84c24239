"""Grid points of a space: their legal plans scored, and those that are wanted timed exactly."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import numpy as np

from windtunnel.job.job import Job
from windtunnel.projection.choices import Changes
from windtunnel.projection.contents import Floats
from windtunnel.search.points import Points, Vary
from windtunnel.search.space import Grid, Space

Front = tuple[tuple[float, float, Changes], ...]
"""Estimated seconds, peak bytes and the plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """What one grid point came to.

    ``rows`` are its variants with a choice that fits and the best bound of those; ``front`` what of them no other
    beats in estimated seconds and peak bytes; ``smallest`` the plan that needs least memory, with both figures.
    """

    enumerated: int
    legal: int = 0
    evaluated: int = 0
    rows: tuple[tuple[int, float], ...] = ()
    front: Front = ()
    smallest: tuple[float, float, Changes] | None = None


@dataclass(slots=True, kw_only=True)
class Surveyed:
    """What some grid points came to: as ``Scored``, but rows with their bound and the number of their point first."""

    enumerated: int = 0
    legal: int = 0
    evaluated: int = 0
    rows: list[tuple[float, int, int]] = field(default_factory=list)
    front: list[tuple[float, float, Changes]] = field(default_factory=list)
    smallest: tuple[float, float, Changes] | None = None

    def add(self, number: int, scored: Scored) -> None:
        self.enumerated += scored.enumerated
        self.legal += scored.legal
        self.evaluated += scored.evaluated
        self.rows += [(bound, number, row) for row, bound in scored.rows]
        self.front += scored.front
        if scored.smallest and (self.smallest is None or scored.smallest[1] < self.smallest[1]):
            self.smallest = scored.smallest


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """The exact seconds and peak bytes of the fitting plans of one variant, fastest first."""

    plans: tuple[tuple[float, float, Changes], ...]
    count: int


@dataclass(slots=True, kw_only=True)
class Examiner:
    """Scores and times the plans of a space."""

    job: Job
    space: Space
    vary: Vary
    top: int = 10
    grid: Grid = field(init=False)
    _points: Points = field(init=False)

    def __post_init__(self) -> None:
        self.grid = self.space.grid
        self._points = Points(job=self.job, space=self.space, vary=self.vary)

    def survey(self, numbers: range) -> Surveyed:
        """The grid points of these numbers, scored."""
        total = Surveyed()
        for number in numbers:
            total.add(number, self.score(self.grid[number]))
        total.front = undominated(total.front)
        return total

    def score(self, point: Changes) -> Scored:
        """Memory of every legal plan of a grid point; bounds and estimates of those that fit."""
        here = self._points.at(point)
        batch = here.batch
        if batch is None:
            return Scored(enumerated=here.enumerated)
        peak = batch.peak_device()
        fits = batch.fits(peak)
        leanest = divmod(int(np.argmin(peak)), peak.shape[1])
        found = Scored(
            enumerated=here.enumerated,
            legal=peak.size,
            smallest=(inf, float(peak[leanest]), here.changes(*leanest)),
        )
        rows = np.flatnonzero(fits.any(axis=1))
        if not len(rows):
            return found
        times, peak, fits = batch.times(rows), peak[rows], fits[rows]
        bounds = np.min(times.bound, axis=1, where=fits, initial=inf)
        front = [
            (float(times.estimate[row, column]), float(peak[row, column]), here.changes(int(rows[row]), column))
            for row, column in _front(times.estimate, peak, fits)
        ]
        return replace(
            found,
            evaluated=int(fits.sum()),
            rows=tuple(zip(rows.tolist(), bounds.tolist(), strict=True)),
            front=tuple(front),
        )

    def time(self, wanted: tuple[int, int]) -> Timed:
        """The fastest fitting plans of one variant of a grid point, given by number, as ``project`` times them."""
        number, row = wanted
        here = self._points.at(self.grid[number])
        batch = here.batch
        assert batch is not None
        peak = batch.peak_device()[row]
        seconds = np.where(batch.fits(peak), batch.exact(row), inf)
        fastest = [int(c) for c in np.argsort(seconds, kind="stable")[: self.top] if np.isfinite(seconds[c])]
        plans = tuple((float(seconds[c]), float(peak[c]), here.changes(row, c)) for c in fastest)
        return Timed(plans=plans, count=int(np.isfinite(seconds).sum()))

    def written(self, point: Changes) -> Changes | None:
        """The point with its layout as text; None where balancing changes nothing."""
        return self._points.written(point)


def undominated(points: Iterable[tuple[float, float, Changes]]) -> list[tuple[float, float, Changes]]:
    """Points no other beats in both numbers, fastest first."""
    kept: list[tuple[float, float, Changes]] = []
    for point in sorted(points, key=lambda p: (p[0], p[1])):
        if not kept or point[1] < kept[-1][1]:
            kept.append(point)
    return kept


def _front(seconds: Floats, peak: Floats, fits: Any) -> list[tuple[int, int]]:
    """Positions of fitting plans that no other one beats in both."""
    flat = np.flatnonzero(fits)
    order = flat[np.lexsort((peak.ravel()[flat], seconds.ravel()[flat]))]
    bytes_ = peak.ravel()[order]
    best_before = np.minimum.accumulate(np.concatenate([[np.inf], bytes_[:-1]]))
    return [divmod(int(index), seconds.shape[1]) for index in order[bytes_ < best_before]]
