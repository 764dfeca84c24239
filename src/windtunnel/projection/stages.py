"""The stages of a grid point by kind: those that hold the same count as one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from windtunnel.projection.contents import Contents, Floats, Ints
from windtunnel.schedule.action import Order
from windtunnel.schedule.in_flight import Counts, peaks, undominated


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stages:
    """Stages of one kind hold the same contents under every recompute choice.

    ``kind`` is by rank; of each kind ``held`` are the chunks of the stage whose first chunk comes last in the model,
    ``contents`` theirs under the first recompute choice.
    """

    kind: Ints
    held: tuple[tuple[int, ...], ...]
    contents: tuple[tuple[int, ...], ...]

    def __len__(self) -> int:
        return len(self.held)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Alive:
    """Moments that could be a peak, by kind of stage: chunks, ``[moment, local chunk]``, and how many micro-batches
    each has alive; ``first[kind]`` is the first moment of a kind."""

    kind: Ints
    first: Ints
    chunks: Ints
    counts: Floats


@lru_cache(maxsize=1024)
def stages_of(found: Contents, order: Order) -> Stages:
    """The stages of a layout's contents under an order."""
    alike, of = found.alike, found.of[0].tolist()
    latest: dict[tuple[int, ...], int] = {}
    keys = [tuple(alike[chunk] for chunk in held) for held in order.placement]
    for rank, key in enumerate(keys):
        if key not in latest or min(order.placement[rank]) > min(order.placement[latest[key]]):
            latest[key] = rank
    number = {key: index for index, key in enumerate(latest)}
    held = tuple(tuple(order.placement[rank]) for rank in latest.values())
    return Stages(
        kind=np.array([number[key] for key in keys], dtype=np.intp),
        held=held,
        contents=tuple(tuple(of[chunk] for chunk in chunks) for chunks in held),
    )


@lru_cache(maxsize=1024)
def alive_of(stages: Stages, order: Order) -> Alive:
    """The moments of every kind of stage that could be its peak."""
    found: list[set[Counts]] = [set() for _ in stages.held]
    for kind, vectors in zip(stages.kind.tolist(), peaks(order), strict=True):
        found[kind].update(vectors)
    most = [undominated(vectors) for vectors in found]
    kind = [number for number, vectors in enumerate(most) for _ in vectors]
    return Alive(
        kind=np.array(kind, dtype=np.intp),
        first=np.cumsum([0, *map(len, most)])[:-1],
        chunks=np.array([stages.held[number] for number in kind], dtype=np.intp),
        counts=np.array([vector for vectors in most for vector in vectors], dtype=np.float64),
    )
