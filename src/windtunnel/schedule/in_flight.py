"""How many micro-batches are alive at once: from the start of their forward until their weight gradient is done."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from windtunnel.schedule.action import Action, Order

Counts = tuple[int, ...]


@lru_cache(maxsize=256)
def peaks(order: Order) -> tuple[tuple[Counts, ...], ...]:
    """Per rank, the Pareto-maximal vectors of micro-batches alive on each local chunk, cached.

    A moment that lies on the straight line between the moments around it is left out: bytes that are a sum over chunks
    of count × bytes of one micro-batch peak at one of the others, whatever the chunks keep.
    """
    return tuple(undominated(_crests(row, len(held))) for row, held in zip(order.actions, order.placement, strict=True))


def peak_in_flight(order: Order) -> tuple[float, ...]:
    """Per rank, the most micro-batches alive at once, in micro-batches of a whole stage (count / v)."""
    return tuple(max((sum(counts) for counts in rank), default=0) / order.virtual_stages for rank in peaks(order))


def _crests(row: Sequence[Action], num_chunks: int) -> set[Counts]:
    """Vectors of alive counts just before each first release after a forward, straight runs reduced to their ends."""
    alive = [0] * num_chunks
    crests: list[Counts] = []
    rising = False
    for kind, _, chunk in row:
        if kind == "F":
            alive[chunk] += 1
            rising = True
        elif kind != "B":
            if rising:
                crests.append(tuple(alive))
                rising = False
            alive[chunk] -= 1
    return {
        crest
        for before, crest, after in zip([(), *crests], crests, [*crests[1:], ()], strict=False)
        if not _midway(before, crest, after)
    }


def _midway(before: Counts, crest: Counts, after: Counts) -> bool:
    """Whether ``crest`` is the mean of two different neighbours; the ends of a row have an empty neighbour."""
    ends = bool(before) and bool(after) and before != after
    return ends and all(a + c == 2 * b for a, b, c in zip(before, crest, after, strict=True))


def undominated(vectors: Iterable[Counts]) -> tuple[Counts, ...]:
    """Vectors not dominated by another, in lexicographic order."""
    kept: list[Counts] = []
    for vector in sorted(vectors, key=sum, reverse=True):  # what dominates a vector has a larger sum
        if not any(all(a <= b for a, b in zip(vector, other, strict=True)) for other in kept):
            kept.append(vector)
    return tuple(sorted(kept))
