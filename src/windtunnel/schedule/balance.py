"""Balanced cuts: consecutive layers over chunks so that the heaviest chunk is as light as can be, within memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import inf

from windtunnel.errors import Fault, LegalityError

Fits = Callable[[int, int, int], bool]
"""Whether a part may hold the items ``start`` to ``end``; where it may, it may hold fewer of them."""
Table = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Bytes of a layer, or of what stands at an end of the model: always there, and for every micro-batch alive."""

    static: float
    kept: float = 0.0


NOTHING = Held(static=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkMemory:
    """What layers hold and what chunks have room for.

    Chunk c holds static bytes and ``in_flight[c]`` times the kept ones, which must not exceed ``room[c]`` bytes.
    """

    layers: Sequence[Held]
    in_flight: Sequence[float]
    room: Sequence[float]
    embedding: Held = NOTHING
    head: Held = NOTHING

    def used(self, counts: Sequence[int], in_flight: float | None = None) -> list[float]:
        """Bytes of every chunk where chunk c has ``counts[c]`` layers, with as many micro-batches alive as given."""
        start, last, used = 1, len(counts) - 1, self._used()
        found = []
        for part, count in enumerate(counts):
            alive = self.in_flight[part] if in_flight is None else in_flight
            found.append(used(alive, 0 if part == 0 else start, start + count + (part == last)))
            start += count
        return found

    def holds(self, counts: Sequence[int]) -> bool:
        """Whether every chunk has room for its layers."""
        return all(used <= room for used, room in zip(self.used(counts), self.room, strict=True))

    def fits(self) -> Fits:
        """Over the embedding, the layers and the head, in that order."""
        used = self._used()
        return lambda part, start, end: used(self.in_flight[part], start, end) <= self.room[part]

    def _used(self) -> Callable[[float, int, int], float]:
        """Bytes of the items ``start`` to ``end``, the embedding, the layers and the head in that order."""
        items = (self.embedding, *self.layers, self.head)
        static = list(accumulate((item.static for item in items), initial=0.0))
        kept = list(accumulate((item.kept for item in items), initial=0.0))
        return lambda alive, start, end: static[end] - static[start] + alive * (kept[end] - kept[start])


def anything(_: int, __: int, ___: int) -> bool:
    return True


def minimax_cut(weights: Sequence[float], parts: int, fits: Fits = anything) -> list[int]:
    """Lengths of ``parts`` consecutive non-empty runs of ``weights`` with the smallest possible heaviest run.

    Part k may hold what ``fits``. Of equal cuts the one with the longest last run, then the longest before it, and so
    on. ``weights`` are not negative. Exact, by dynamic programming over parts and ends. Raises LegalityError where
    nothing fits.
    """
    if not weights:
        return [0] * parts
    sums = tuple(accumulate(weights, initial=0.0))
    heaviest = _heaviest(sums, parts, fits)
    best = heaviest[parts][len(weights)]
    if best == inf:
        raise LegalityError(no_cut(parts))
    counts: list[int] = []
    end = len(weights)
    for part in reversed(range(parts)):
        start = first = end - 1
        while first >= part and sums[end] - sums[first] <= best and fits(part, first, end):
            start = first if heaviest[part][first] <= best else start
            first -= 1  # a longer run is no lighter and needs no less memory
        counts.append(end - start)
        end = start
    return counts[::-1]


def no_cut(parts: int) -> Fault:
    rule = f"no cut into {parts} chunks keeps every chunk within its memory"
    remedy = "use more stages, recompute more, shard more or take smaller micro-batches"
    return Fault("plan.pipeline.layout", str(parts), rule, remedy)


def _heaviest(sums: tuple[float, ...], parts: int, fits: Fits) -> Table:
    """``[k][i]``: the lightest heaviest run of the first i items in k runs; infinite where there is none."""
    if fits is anything:
        for some in range(STEP, parts, STEP):
            _free(sums, some)
        return _free(sums, parts)
    table: Table = ((0.0, *[inf] * (len(sums) - 1)),)
    for part in range(parts):
        table = (*table, _row(sums, table[-1], part, fits))
    return table


STEP = 100
"""Rows that are found in one recursion."""


@lru_cache(maxsize=1024)
def _free(sums: tuple[float, ...], parts: int) -> Table:
    """The table where a part may hold anything: cuts into fewer parts are its beginning, and share it."""
    if parts == 0:
        return ((0.0, *[inf] * (len(sums) - 1)),)
    table = _free(sums, parts - 1)
    return (*table, _row(sums, table[-1], parts - 1, anything))


def _row(sums: tuple[float, ...], before: tuple[float, ...], part: int, fits: Fits) -> tuple[float, ...]:
    row = [inf] * len(sums)
    for end in range(part + 1, len(sums)):
        best = inf
        for start in range(end - 1, part - 1, -1):
            run = sums[end] - sums[start]
            if run >= best or not fits(part, start, end):
                break  # a longer run is no lighter and needs no less memory
            heaviest = before[start] if before[start] > run else run
            best = min(best, heaviest)
        row[end] = best
    return tuple(row)
