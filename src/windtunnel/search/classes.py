"""The shapes a plan may have: degrees, schedule and chunks, micro-batch, from the most promising down."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from windtunnel.projection.choices import Changes
from windtunnel.search.moves import CP, EP, MICRO_BATCH, PP, SEQUENCE_PARALLEL, TP, WORLD, Moves, spread, takes
from windtunnel.search.space import LAYOUT, SCHEDULE, VIRTUAL_STAGES

DEGREES = (WORLD, TP, CP, PP, EP)
SHAPE = (*DEGREES, MICRO_BATCH, SEQUENCE_PARALLEL)


@dataclass(frozen=True, slots=True)
class Shape:
    """Changes that make a shape of a plan; ``degrees`` are those of its grid."""

    changes: Changes
    degrees: tuple[Any, ...]
    words: str


def shapes(moves: Moves) -> Iterator[Shape]:
    """Every shape of the space, each once; what is not part of a shape is the job's, or as wished."""
    paths = [path for path in SHAPE if len(moves.axis(path)) > 1]
    seen: set[str] = set()
    for values in product(*(moves.axis(path) for path in paths)):
        chosen = dict(zip(paths, values, strict=True))
        for pipeline in _pipelines(moves, int(moves.value(chosen, PP))):
            changes = moves.moved({}, {**chosen, **pipeline})
            if changes is not None and (key := repr(sorted(changes.items()))) not in seen:
                seen.add(key)
                words = " ".join(f"{path.rpartition('.')[2]} {value}" for path, value in {**chosen, **pipeline}.items())
                yield Shape(changes, degrees(moves, changes), words)


def degrees(moves: Moves, changes: Changes) -> tuple[Any, ...]:
    return tuple(moves.value(changes, path) for path in DEGREES)


def _pipelines(moves: Moves, pp: int) -> Sequence[Changes]:
    """Schedules, the chunks they take and how layers are laid out: of many counts the fewest, the most and one between
    that divide the layers."""
    axes = (SCHEDULE, VIRTUAL_STAGES, LAYOUT)
    if pp == 1 or not any(len(moves.axis(path)) > 1 for path in axes):
        return [{}]
    schedules, counts, layouts = (moves.axis(path) or (moves.value({}, path),) for path in axes)
    layers = moves.job.model.num_layers
    found: list[Changes] = []
    for schedule in schedules:
        able = [count for count in counts if takes(str(schedule), int(count))]
        even = [count for count in able if layers % (pp * count) == 0] or able
        pairs = product(spread(even, COUNTS), layouts)
        found += [dict(zip(axes, (schedule, *pair), strict=True)) for pair in pairs]
    return found


COUNTS = 3
"""Numbers of chunks that stand for all of them."""
