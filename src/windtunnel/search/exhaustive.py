"""Every plan of a space: memory first, then a bound, then exact times for whatever the bound cannot rule out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import nsmallest
from math import inf
from typing import Any, Literal, Protocol

from windtunnel.projection.choices import Changes
from windtunnel.search.examine import Examiner, Surveyed, Timed, undominated
from windtunnel.search.moves import WORLD
from windtunnel.search.objective import front

Task = Literal["survey", "time"]


class Spread(Protocol):
    """Carries out a task of the examiner on every item, in order: here, or on several processes."""

    def __call__(self, task: Task, items: Iterable[Any]) -> Iterator[Any]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One plan of the space with its exact step time; the smallest one's may not be known (infinite)."""

    changes: Changes
    step_time: float
    peak_device: float


@dataclass(slots=True, kw_only=True)
class Progress:
    """What a search has done so far; ``smallest`` is the plan that needs least memory, fitting or not.

    ``legal`` counts plans that could run, ``evaluated`` those of them that fit and were estimated.
    """

    enumerated: int = 0
    legal: int = 0
    pruned: int = 0
    evaluated: int = 0
    exactly_timed: int = 0
    phase: Literal["bounds", "exact", "done"] = "bounds"
    best: Plan | None = None
    smallest: Plan | None = None
    found: list[Plan] = field(default_factory=list)
    front: list[tuple[float, float, Changes]] = field(default_factory=list)
    certified: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Exhaustive:
    """Branch and bound over the grid points of a space; the plans of a point are arrays.

    Exact times come in the order of the bounds, so that the search ends once no bound beats the last of the best
    ``top`` plans. ``spread`` carries the work out; by default here, one item after the other.
    """

    examiner: Examiner
    spread: Spread | None = None
    at_once: int = 8
    """Variants timed between two looks at what is still worth timing."""
    run_length: int = 1
    """Grid points scored between two looks at whether to stop."""

    def run(self, progress: Progress, stop: Callable[[], bool], tick: Callable[[], None]) -> None:
        """Fill ``progress``; at the end no plan of the space that fits is faster than ``progress.best``.

        ``stop`` is asked between items and ends the search early, without a certificate.
        """
        rows: list[tuple[float, int, int]] = []
        for surveyed in self._each("survey", self.examiner.grid.runs(self.run_length)):
            _count(progress, surveyed)
            rows += surveyed.rows
            tick()
            if stop():
                break
        progress.phase = "exact"
        rows.sort()
        if self._time(rows, progress, stop, tick):
            progress.phase, progress.certified = "done", True

    def _time(
        self,
        rows: list[tuple[float, int, int]],
        progress: Progress,
        stop: Callable[[], bool],
        tick: Callable[[], None],
    ) -> bool:
        """Time variants while a bound beats the best; whether none was left. Stopped, it times the most promising."""
        for start in range(0, len(rows), self.at_once):
            some = [row for row in rows[start : start + self.at_once] if row[0] < self._to_beat(progress)]
            if not some:
                break
            for timed in self._each("time", ((number, row) for _, number, row in some)):
                _record(progress, timed, self.examiner.top)
            tick()
            if stop():
                return False
        return not stop()

    def _to_beat(self, progress: Progress) -> float:
        """The time of the last of the top plans, once there are enough."""
        return progress.found[-1].step_time if len(progress.found) == self.examiner.top else inf

    def _each(self, task: Task, items: Iterable[Any]) -> Iterator[Any]:
        if self.spread is not None:
            return self.spread(task, items)
        return map(getattr(self.examiner, task), items)


FRONT_LIMIT = 4096
"""Points a Pareto front may hold before it is thinned."""


def _count(progress: Progress, scored: Surveyed) -> None:
    progress.enumerated += scored.enumerated
    progress.legal += scored.legal
    progress.evaluated += scored.evaluated
    progress.pruned += scored.enumerated - scored.evaluated
    if scored.smallest is not None:
        seconds, needs, changes = scored.smallest
        if progress.smallest is None or needs < progress.smallest.peak_device:
            progress.smallest = Plan(changes=changes, step_time=seconds, peak_device=needs)
    progress.front += scored.front
    if len(progress.front) > FRONT_LIMIT:
        progress.front = undominated(progress.front)


def _record(progress: Progress, timed: Timed, top: int) -> None:
    progress.exactly_timed += timed.count
    plans = [Plan(changes=changes, step_time=seconds, peak_device=peak) for seconds, peak, changes in timed.plans]
    progress.found = nsmallest(top, [*progress.found, *plans], key=lambda plan: plan.step_time)
    progress.best = progress.found[0] if progress.found else None


def pareto(progress: Progress, accelerators: int) -> list[tuple[float, float, Changes]]:
    """The front of step time (as estimated), peak memory and accelerators over every plan that fits, fastest first;
    ``accelerators`` are those of plans that do not say it."""
    worlds: dict[int, list[tuple[float, float, Changes]]] = {}
    for point in progress.front:
        worlds.setdefault(accelerators_of(point[2], accelerators), []).append(point)
    points = [(time, peak, world, plan) for world, some in worlds.items() for time, peak, plan in undominated(some)]
    return [(time, peak, plan) for time, peak, _, plan in front(points, lambda point: (*map(float, point[:3]),))]


def accelerators_of(changes: Changes, otherwise: int) -> int:
    """Accelerators of a plan."""
    return int(changes.get(WORLD, otherwise))
