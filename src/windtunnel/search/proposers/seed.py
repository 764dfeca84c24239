"""What an engineer would try first: the baseline, shapes of plans from the most promising down, one axis at a time."""

from __future__ import annotations

from typing import Any

from windtunnel.projection.choices import (
    ACTIVATION_OFFLOAD,
    DISPATCHER,
    OPTIMIZER_OFFLOAD,
    RECOMPUTE,
    SHARDING,
)
from windtunnel.search.classes import degrees
from windtunnel.search.moves import CP, EP, MICRO_BATCH, PP, SEQUENCE_PARALLEL, TP, WORLD
from windtunnel.search.proposers.base import Ground, Steps
from windtunnel.search.proposers.ladder import Climbing, Move, Try, shown
from windtunnel.search.proposers.ranking import Ranking
from windtunnel.search.space import LAYOUT, ORDER, SCHEDULE, VIRTUAL_STAGES
from windtunnel.search.trial import Trial

LEVERAGE = (RECOMPUTE, DISPATCHER, SCHEDULE, VIRTUAL_STAGES, MICRO_BATCH, SHARDING, LAYOUT, ORDER, OPTIMIZER_OFFLOAD,
            SEQUENCE_PARALLEL, ACTIVATION_OFFLOAD, WORLD, TP, CP, PP, EP)  # fmt: skip
"""Axes in the order in which they are swept around the best plan; others a space has come after them."""
PROMISING = 1.01
"""Times the best step that a value of a sweep may take, if it does as well as it may."""
DISTINCT = 16
"""Calls for shapes of different degrees."""
SHAPES = 12
"""Calls for the shapes that are then expected to be best, whatever their degrees."""
MORE = 6
"""Calls of either kind between sweeps."""
WITHIN = 1.08
"""Times the best objective within which a plan of other degrees is swept around too."""
CALLS = 60
"""Plans after which it has said what it knows."""


class Seed(Climbing):
    """Deterministic. Shapes are taken in the order of the step an envelope expects, corrected by what was tried; what
    does not fit gives up more. Then sweeps keep the best value found so far; a round of sweeps and shapes that brings
    nothing is the last, so that who comes after it has calls left."""

    name = "seed"
    most_calls = CALLS

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground)
        self.ranking = Ranking(self)
        self.here: Trial | None = None
        """The plan around which it sweeps."""
        self._swept: set[tuple[Any, ...]] = set()
        """Degrees it has swept around."""

    def steps(self) -> Steps:
        yield from self.tried([self.baseline])
        on = self.moves.moved({}, {})
        yield from self.fitted([] if on is None else [(on, "every overlap on, its state sharded")])
        yield from self.ranking.tried(DISTINCT, distinct=True)
        yield from self.ranking.tried(SHAPES, distinct=False)
        before = None
        while before is not self.best and self.calls < CALLS:
            before = self.best
            while self.calls < CALLS and (here := self._unswept()) is not None:
                yield from self._sweeps(here)
            for distinct in (True, False):
                yield from self.ranking.tried(MORE, distinct=distinct)

    def _unswept(self) -> Trial | None:
        """The best plan of degrees it has not swept around, where that is within reach of the best."""
        left = [trial for grid, trial in self.leaders.items() if grid not in self._swept]
        here = min(left, key=lambda trial: trial.rank, default=None)
        return here if here and self.best and here.rank[0] <= WITHIN * self.best.rank[0] else None

    def _sweeps(self, here: Trial) -> Steps:
        """One axis at a time, keeping what helps, until none does."""
        self.here, before = here, None
        while before is not self.here and self.calls < CALLS:
            before = self.here
            for path in (*LEVERAGE, *(axis.path for axis in self.moves.axes if axis.path not in LEVERAGE)):
                answers = yield from self._sweep(self.here, path)
                self.here = min([self.here, *answers], key=lambda trial: trial.rank)
        self._swept |= {degrees(self.moves, trial.changes) for trial in (here, self.here)}

    def _sweep(self, here: Trial, path: str) -> Try:
        """Other values of one axis, all else as in a plan but for what memory asks."""
        at = here.changes
        now, limit = self.moves.value(at, path), PROMISING * self.reached(here)
        found: list[Move] = []
        for value in self.moves.axis(path):
            changes = self.moves.moved(at, {path: value}) if value != now else None
            if changes is not None and (path in self.trading or self.promise(changes) <= limit):
                found.append((changes, f"sweep {path}: {shown(value)} instead of {shown(now)}"))
        if path == RECOMPUTE:
            lighter = [move for move in found if self.weight(move[0][path]) < self.weight(now)]
            return (yield from self.tried(lighter))
        return (yield from self.fitted(found, keep=(path,)))
