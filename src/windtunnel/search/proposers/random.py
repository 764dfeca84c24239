"""The yardstick: plans drawn evenly from the axes, by a seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any

from windtunnel.projection.choices import Changes
from windtunnel.search.moves import Moves
from windtunnel.search.proposers.base import Steps, Stepwise
from windtunnel.search.trial import Proposal

DRAWS = 20_000
"""Draws after which a space is taken to be empty."""


class Random(Stepwise):
    """One value per axis, drawn again where the degrees do not divide the accelerators; never the same plan twice."""

    name = "random"

    def steps(self) -> Steps:
        moves = Moves(self.ground.job, self.ground.space)
        numbers = _numbers(self.ground.seed)
        seen: set[str] = set()
        for count in range(1, DRAWS + 1):
            point = _drawn(moves, numbers)
            if point is None or repr(sorted(point.items())) in seen:
                continue
            seen.add(repr(sorted(point.items())))
            yield [Proposal(point, f"draw {count} of seed {self.ground.seed}")]


def _drawn(moves: Moves, numbers: Iterator[int]) -> Changes | None:
    point = {axis.path: _pick(axis.values, next(numbers)) for axis in moves.axes}
    return moves.settled({}, point)


def _pick(values: Sequence[Any], number: int) -> Any:
    return values[number % len(values)]


def _numbers(seed: int) -> Iterator[int]:
    """The same numbers for the same seed, on every machine: 64 bits of a hash of a counter."""
    count = 0
    while True:
        yield int.from_bytes(blake2b(f"{seed}:{count}".encode(), digest_size=8).digest())
        count += 1
