"""What the chunks of a layout are made of under several recompute choices: counts of units, each content once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from windtunnel.job.job import Job
from windtunnel.job.model import ModelSpec
from windtunnel.job.plan import Chunk
from windtunnel.ops.chunk import Unit, counted_units
from windtunnel.projection.choices import Recompute

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Counted = tuple[tuple[Unit, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Contents:
    """Distinct chunk contents: ``counts[content, unit]``, and ``of[recompute, chunk]`` says which a chunk has."""

    units: tuple[Unit, ...]
    counts: Floats
    of: Ints
    counted: tuple[Counted, ...]
    chunks: tuple[Chunk, ...]
    """One chunk of each content: its ends are those of all."""
    alike: tuple[int, ...]
    """Chunks of one number have the same content under every recompute choice."""


def contents(job: Job, recomputes: tuple[Recompute | None, ...]) -> Contents:
    """The contents of the job's layout under each of several recompute choices, one row of ``of`` for each."""
    plan = job.plan
    own = plan.recompute if None in recomputes else ()
    return _contents(job.model, plan.precision.first_last_layers_bf16, plan.pipeline.layout, recomputes, own)


@lru_cache(maxsize=1024)
def _contents(
    model: ModelSpec,
    edge: int,
    layout: tuple[Chunk, ...],
    recomputes: tuple[Recompute | None, ...],
    own: tuple[frozenset[str], ...],
) -> Contents:
    makings = _makings(model, edge)
    plain = [makings.plain(chunk) for chunk in layout]
    first = dict(zip(reversed(plain), reversed(layout), strict=True))
    found: dict[tuple[int, bool, int], int] = {}
    counted: list[Counted] = []
    chunks: list[Chunk] = []

    def number(each: tuple[frozenset[str], ...], kind: int, chunk: Chunk) -> int:
        made_of = makings.counted(each, kind, chunk)
        key = (id(made_of), chunk.head, chunk.num_mtp_layers)
        if key not in found:
            found[key] = len(chunks)
            counted.append(made_of)
            chunks.append(chunk)
        return found[key]

    rows = []
    for recompute in recomputes:
        each = own if recompute is None else recompute.over(layout, model.num_mtp_layers)
        if recompute is None or recompute.layers is not None:
            rows.append([number(each, kind, chunk) for kind, chunk in zip(plain, layout, strict=True)])
            continue
        # No layer is named, so that chunks made of the same recompute the same.
        of_kind = {kind: number(each, kind, chunk) for kind, chunk in first.items()}
        rows.append([of_kind[kind] for kind in plain])
    units = tuple(dict.fromkeys(unit for made_of in counted for unit, _ in made_of))
    counts = np.zeros((len(chunks), len(units)))
    for index, made_of in enumerate(counted):
        for unit, occurrences in made_of:
            counts[index, units.index(unit)] = occurrences
    classes: dict[tuple[int, ...], int] = {}
    return Contents(
        units=units,
        counts=counts,
        of=np.array(rows, dtype=np.intp),
        counted=tuple(counted),
        chunks=tuple(chunks),
        alike=tuple(classes.setdefault(column, len(classes)) for column in zip(*rows, strict=True)),
    )


class _Makings:
    """Chunks of one model, and what they are made of: each alike is counted once, whatever the layout."""

    def __init__(self, model: ModelSpec, edge: int) -> None:
        self._model, self._edge, self._layers = model, edge, model.layers
        self._plain: dict[tuple[object, ...], int] = {}
        self._counted: dict[tuple[object, ...], Counted] = {}
        self._same: dict[Counted, Counted] = {}

    def plain(self, chunk: Chunk) -> int:
        """The number of what a chunk is made of apart from its recompute."""
        edge, last = self._edge, len(self._layers) - self._edge
        held = tuple((id(self._layers[index]), index < edge or index >= last) for index in chunk.layers)
        key = (held, chunk.embedding, chunk.head, chunk.num_mtp_layers)
        return self._plain.setdefault(key, len(self._plain))

    def counted(self, each: tuple[frozenset[str], ...], kind: int, chunk: Chunk) -> Counted:
        """The units of a chunk of a kind; equal ones are one object."""
        depths = each[len(self._layers) :] if chunk.num_mtp_layers else ()
        key = (kind, tuple(map(each.__getitem__, chunk.layers)), depths)
        if key not in self._counted:
            made_of = counted_units(self._model, each, self._edge, chunk)
            self._counted[key] = self._same.setdefault(made_of, made_of)
        return self._counted[key]


@lru_cache(maxsize=16)
def _makings(model: ModelSpec, edge: int) -> _Makings:
    return _Makings(model, edge)
