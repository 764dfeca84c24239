"""Shapes of plans from the most promising down; what memory refuses gives up more and takes its place again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from math import inf

from windtunnel.projection.choices import Changes
from windtunnel.search.classes import Shape, shapes
from windtunnel.search.corrected import Features
from windtunnel.search.proposers.base import Steps
from windtunnel.search.proposers.ladder import CLIMBED, Climbing

AT_ONCE = 4
"""Plans between two looks at what they have shown."""
FAR = 2.5
"""Times the promise of the best plan beyond which shapes are not worth a call."""


@dataclass(slots=True, order=True)
class Entry:
    """A shape on one rung; ordered by its promise, then as shapes are enumerated."""

    promise: float
    index: int
    rung: int
    shape: Shape = field(compare=False)
    changes: Changes = field(compare=False)
    guess: float = field(compare=False)
    features: Features = field(compare=False)


class Ranking:
    """The shapes of a climber's space. One that was tried, or gave up all it could, is not proposed again."""

    def __init__(self, climber: Climbing) -> None:
        self.climber = climber
        self._queue: list[Entry] | None = None
        self._ran = 0
        """Trials that the promises of the queue know of."""

    def tried(self, calls: int, *, distinct: bool) -> Steps:
        """Spend so many calls; where plans must be ``distinct``, on degrees that no plan has had."""
        climber, start = self.climber, self.climber.calls
        if self._queue is None:
            every = enumerate(shapes(climber.moves))
            self._queue = [entry for index, shape in every for entry in self._rung(shape, index, 0)]
            heapify(self._queue)
        held: list[Entry] = []
        while climber.calls - start < calls and climber.calls < climber.most_calls:
            self._rank()
            batch = self._batch(min(AT_ONCE, calls - (climber.calls - start)), held, distinct=distinct)
            if not batch:
                break
            answers = yield from climber.tried([(entry.changes, f"shape: {entry.shape.words}") for entry in batch])
            for entry, answer in zip(batch, answers, strict=True):
                if answer.outcome.status in CLIMBED:
                    for lower in self._rung(entry.shape, entry.index, entry.rung + 1):
                        heappush(self._queue, lower)
        for entry in held:
            heappush(self._queue, entry)

    def _batch(self, size: int, held: list[Entry], *, distinct: bool) -> list[Entry]:
        """The next plans; what must wait until others are answered goes back, what must not be tried is held."""
        assert self._queue is not None
        best = self.climber.best
        limit = inf if best is None else FAR * self.climber.reached(best)
        batch, waiting = list[Entry](), list[Entry]()
        while self._queue and len(batch) < size and self._queue[0].promise <= limit:
            entry = heappop(self._queue)
            if distinct and entry.shape.degrees in self.climber.ran:
                held.append(entry)
            elif distinct and any(entry.shape.degrees == other.shape.degrees for other in batch):
                waiting.append(entry)
            else:
                batch.append(entry)
        for entry in waiting:
            heappush(self._queue, entry)
        return batch

    def _rung(self, shape: Shape, index: int, rung: int) -> Iterator[Entry]:
        """The shape on this rung, or on the next one that is not hopeless."""
        climber = self.climber
        for number, given_up in enumerate(climber.rungs_of(shape.changes)):
            changes = {**shape.changes, **given_up}
            if number >= rung and not climber.hopeless(changes):
                guess, features = climber.cost(changes), climber.features(changes)
                promise = guess * climber.corrections.hope(features)
                yield Entry(promise, index, number, shape, changes, guess, features)
                return

    def _rank(self) -> None:
        """Put the queue in the order of what is known by now."""
        assert self._queue is not None
        if self._ran == len(self.climber.corrections):
            return
        self._ran = len(self.climber.corrections)
        for entry in self._queue:
            entry.promise = entry.guess * self.climber.corrections.hope(entry.features)
        heapify(self._queue)
