"""What the chunks of a layout are made of under several recompute choices: counts of units, each content once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from windtunnel.job.job import Job
from windtunnel.job.model import LayerSpec, ModelSpec
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
    found: dict[tuple[Counted, bool, int], int] = {}
    known: dict[tuple[object, ...], int] = {}
    chunks: list[Chunk] = []
    rows = []
    kinds: dict[tuple[object, ...], int] = {}
    plain = [kinds.setdefault(_plain(model.layers, edge, chunk), len(kinds)) for chunk in layout]
    for recompute in recomputes:
        each = own if recompute is None else recompute.over(layout, model.num_mtp_layers)
        depths = each[model.num_layers :]
        row = []
        for chunk, kind in zip(layout, plain, strict=True):
            alike = (kind, tuple(map(each.__getitem__, chunk.layers)), depths if chunk.num_mtp_layers else ())
            if alike not in known:
                key = (counted_units(model, each, edge, chunk), chunk.head, chunk.num_mtp_layers)
                if key not in found:
                    found[key] = len(found)
                    chunks.append(chunk)
                known[alike] = found[key]
            row.append(known[alike])
        rows.append(row)
    counted = tuple(key[0] for key in found)
    units = tuple(dict.fromkeys(unit for made_of in counted for unit, _ in made_of))
    counts = np.zeros((len(found), len(units)))
    for index, made_of in enumerate(counted):
        for unit, occurrences in made_of:
            counts[index, units.index(unit)] = occurrences
    classes: dict[tuple[int, ...], int] = {}
    return Contents(
        units=units,
        counts=counts,
        of=np.array(rows, dtype=np.intp),
        counted=counted,
        chunks=tuple(chunks),
        alike=tuple(classes.setdefault(column, len(classes)) for column in zip(*rows, strict=True)),
    )


def _plain(layers: tuple[LayerSpec, ...], edge: int, chunk: Chunk) -> tuple[object, ...]:
    """What a chunk is made of apart from its recompute."""
    last = len(layers) - edge
    held = tuple((id(layers[index]), index < edge or index >= last) for index in chunk.layers)
    return held, chunk.embedding, chunk.head, chunk.num_mtp_layers
