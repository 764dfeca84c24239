"""Best improvement: every plan one move from the incumbent, then on from the best of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Any

from windtunnel.projection.choices import ACTIVATION_OFFLOAD, OPTIMIZER_OFFLOAD, RECOMPUTE, SHARDING, Changes
from windtunnel.search.classes import degrees
from windtunnel.search.moves import CP, EP, MICRO_BATCH, PP, TP, WORLD
from windtunnel.search.proposers.base import Ground, Steps
from windtunnel.search.proposers.ladder import Climbing, Move, shown
from windtunnel.search.proposers.ranking import Ranking
from windtunnel.search.space import SCHEDULE, VIRTUAL_STAGES
from windtunnel.search.trial import Trial

ORDERED = (TP, CP, PP, EP, MICRO_BATCH, VIRTUAL_STAGES, WORLD)
"""Axes with neighbours; on others every value is one move away."""
FREEING = (
    TP,
    CP,
    PP,
    EP,
    MICRO_BATCH,
    WORLD,
    VIRTUAL_STAGES,
    SCHEDULE,
    OPTIMIZER_OFFLOAD,
    ACTIVATION_OFFLOAD,
    SHARDING,
)
"""Axes that change what fits: with their moves the plan gives up as little as it can."""
SHAPES = 12
"""Calls for shapes of degrees that no plan has had, then for the most promising of all, before the first climb."""
MORE = 6
"""Calls of either kind between two climbs."""
STARTS = 8
"""Best plans of their degrees that it climbs from."""
PROMISING = 1.08
"""Times the step of the plan it stands on that a move may take, if it does as well as it may."""


class Local(Climbing):
    """Starts from the best plan it was told of, or from the most promising shapes.

    Where several axes help on their own, their moves are also tried together before the best is taken. Without a
    single move that helps, pairs are tried. At a summit more shapes are tried, and it climbs from the best plan of
    degrees it has not climbed from.
    """

    name = "local"

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground)
        self.here: Trial | None = None
        self.ranking = Ranking(self)

    @property
    def at(self) -> Changes:
        return {} if self.here is None else self.here.changes

    def steps(self) -> Steps:
        if self.best is None:
            yield from self.tried([self.baseline])
            for distinct in (True, False):
                yield from self.ranking.tried(SHAPES, distinct=distinct)
        if not self.leaders:
            yield from self._climb()
        climbed = set[tuple[Any, ...]]()
        before = -1
        while len(climbed) < STARTS and before < self.calls:
            before = self.calls
            left = {grid: trial for grid, trial in self.leaders.items() if grid not in climbed}
            if left:
                self.here = min(left.values(), key=_rank)
                climbed.add(degrees(self.moves, self.here.changes))
                yield from self._climb()
                climbed.add(degrees(self.moves, self.here.changes))
            for distinct in (True, False):
                yield from self.ranking.tried(MORE, distinct=distinct)

    def _climb(self) -> Steps:
        """Rounds of moves until none helps."""
        rounds = 0
        while True:
            rounds += 1
            before, tried = self.here, list[Trial]()
            for path, moves in self._singles(rounds):
                tried += yield from (self.fitted(moves, keep=(path,)) if path in FREEING else self.tried(moves))
            tried += yield from self.tried(self._joined(before, tried, rounds))
            if not self._moved_to(tried):
                self._moved_to((yield from self.fitted(list(self._pairs(rounds)))))
            if self.here is before:
                return

    def _promising(self, changes: Changes, *paths: str) -> bool:
        """Whether a plan that is changed at these paths is worth a call."""
        if self.here is None or self.trading & set(paths):
            return True
        return self.promise(changes) <= PROMISING * self.reached(self.here)

    def _moved_to(self, tried: Sequence[Trial]) -> bool:
        """Go to the best of the plans where it beats the one it stands on; whether it did."""
        best = min(tried, key=_rank, default=None)
        better = best is not None and bool(best.values) and (self.here is None or best.rank < self.here.rank)
        if better:
            self.here = best
        return better

    def _singles(self, rounds: int) -> Iterator[tuple[str, list[Move]]]:
        at = self.at
        for axis in self.moves.axes:
            now = self.moves.value(at, axis.path)
            made = [
                (
                    self.moves.moved(at, {axis.path: value}),
                    f"round {rounds}: {axis.path} {shown(value)} instead of {shown(now)}",
                )
                for value in self._near(axis.path, axis.values, now)
            ]
            yield (
                axis.path,
                [
                    (changes, reason)
                    for changes, reason in made
                    if changes is not None and self._promising(changes, axis.path)
                ],
            )

    def _near(self, path: str, values: Sequence[Any], now: Any) -> list[Any]:
        """The values one move away: neighbours on ordered axes and on the ladder, else all others."""
        ordered = sorted(values, key=self.weight) if path == RECOMPUTE else list(values)
        if path not in (*ORDERED, RECOMPUTE) or now not in ordered:
            return [value for value in ordered if value != now]
        here = ordered.index(now)
        return ordered[max(0, here - 1) : here] + ordered[here + 1 : here + 2]

    def _joined(self, before: Trial | None, singles: Sequence[Trial], rounds: int) -> list[Move]:
        """Every helpful move at once, the better one where two touch the same path."""
        if before is None:
            return []
        at, changes = before.changes, dict[str, Any]()
        helpful = sorted((trial for trial in singles if trial.rank < before.rank), key=lambda trial: trial.rank)
        for trial in helpful:
            made = _difference(at, trial.changes)
            if not made.keys() & changes.keys():
                changes |= made
        together = self.moves.moved(at, changes) if len(helpful) > 1 else None
        return [] if together is None else [(together, f"round {rounds}: every move that helped, together")]

    def _pairs(self, rounds: int) -> Iterator[Move]:
        for one, other in combinations(FREEING, 2):
            near = [self._near(p, self.moves.axis(p), self.moves.value(self.at, p)) for p in (one, other)]
            for a, b in product(*near):
                changes = self.moves.moved(self.at, {one: a, other: b})
                if changes is not None and self._promising(changes, one, other):
                    yield changes, f"round {rounds}: {one} {shown(a)} with {other} {shown(b)}"


def _rank(trial: Trial) -> tuple[float, float]:
    return trial.rank


def _difference(at: Mapping[str, Any], other: Mapping[str, Any]) -> Changes:
    """What the other plan says differently; what it leaves to be derived is left alone."""
    return {path: value for path, value in other.items() if at.get(path) != value}
