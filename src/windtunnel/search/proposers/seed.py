"""What an engineer would try first: the baseline, one axis at a time by how much it usually brings, a coarse grid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from windtunnel.projection.choices import (
    ACTIVATION_OFFLOAD,
    DISPATCHER,
    OPTIMIZER_OFFLOAD,
    RECOMPUTE,
    SHARD_SIZE,
    SHARDING,
    Changes,
)
from windtunnel.search.moves import CP, EP, MICRO_BATCH, PP, SEQUENCE_PARALLEL, TP, WORLD, spread
from windtunnel.search.proposers.base import Steps
from windtunnel.search.proposers.ladder import OVERLAPS, Climbing, Move, Try
from windtunnel.search.space import LAYOUT, SCHEDULE, VIRTUAL_STAGES
from windtunnel.search.trial import FREE

LEVERAGE = (RECOMPUTE, DISPATCHER, SCHEDULE, VIRTUAL_STAGES, MICRO_BATCH, SHARDING)
"""Axes in the order in which they are swept; others a space has, as precision, come after recompute."""
DEGREES = (TP, CP, PP, EP)
HOST = (ACTIVATION_OFFLOAD, OPTIMIZER_OFFLOAD)
REFINED = (VIRTUAL_STAGES, LAYOUT, MICRO_BATCH, *HOST, RECOMPUTE, SCHEDULE, SHARDING, SHARD_SIZE, *DEGREES,
           DISPATCHER, SEQUENCE_PARALLEL)  # fmt: skip
"""Axes in the order in which they are swept around the best plan of the grid."""
SWEEP = 2
"""Values of one axis in a first sweep."""
GRID_CALLS = 34
LEVEL = 10
"""Plans of the grid on one rung."""
MICROS = 2
"""Micro-batches of the grid, the smallest."""
AT_ONCE = 4
"""Plans of the grid between two looks at what is left to spend."""
CALLS = 60
"""Plans after which it has said what it knows."""


class Seed(Climbing):
    """Deterministic. Sweeps keep the best value found so far; what does not fit gives up more."""

    name = "seed"
    most_calls = CALLS

    def steps(self) -> Steps:
        yield from self.tried([({}, "the baseline")])
        on = self.moves.moved(self.at, {})
        yield from self.fitted([] if on is None else [(on, "every overlap on, its state sharded")])
        for path in self._order():
            yield from self._sweep(path, SWEEP)
        yield from self._grid()
        before = None
        while before is not self.best and self.calls < CALLS:
            before = self.best
            for path in REFINED:
                yield from self._sweep(path, CALLS)

    def _order(self) -> list[str]:
        known = {*LEVERAGE, *OVERLAPS, *REFINED}
        others = [axis.path for axis in self.moves.axes if axis.path not in known]
        return [LEVERAGE[0], *others, *LEVERAGE[1:]]

    def _sweep(self, path: str, count: int) -> Try:
        """Other values of one axis, all else as in the best plan but for what memory asks."""
        at = self.at
        now = self.moves.value(at, path)
        found: list[Move] = []
        for value in spread([value for value in self.moves.axis(path) if value != now], count):
            changes = self.moves.moved(at, {path: value})
            if changes is not None:
                found.append((changes, f"sweep {path}: {value} instead of {now}"))
        if path == RECOMPUTE:
            return (yield from self.tried(found))
        return (yield from self.fitted(found, keep=(path,)))

    def _grid(self) -> Steps:
        """Degrees and micro-batches, rung by rung, on each those that split least.

        What gives up more than a plan that fits, splits no less on any axis and has no larger micro-batch is left out.
        """
        points, fitting, start = list(self._points()), list[Split](), self.calls
        for level in range(max(1, len(self.rungs))):
            room, here = LEVEL, list[Split]()
            left = [p for p in points if level < len(self.rungs_of(p[1])) and not _beaten(p[0], fitting)]
            while left and room > 0 and self.calls - start < GRID_CALLS:
                some, left = left[:AT_ONCE], left[AT_ONCE:]
                moves = [({**changes, **self.rungs_of(changes)[level]}, reason) for _, changes, reason in some]
                answers = yield from self.tried(moves)
                for point, answer in zip(some, answers, strict=False):
                    if answer.outcome.status not in FREE:
                        room -= 1
                        here.append(point[0])
                    if answer.outcome.status != "infeasible":
                        points.remove(point)
            fitting += here

    def _points(self) -> Iterator[tuple[Split, Changes, str]]:
        paths = [path for path in (WORLD, *DEGREES, MICRO_BATCH) if len(self.moves.axis(path)) > 1]
        axes = [self.moves.axis(path)[: MICROS if path == MICRO_BATCH else None] for path in paths]
        named = [dict(zip(paths, values, strict=True)) for values in product(*axes)]
        for chosen in sorted(named, key=lambda chosen: _order(_split(chosen))):
            changes = self.moves.moved({**self.at, **self.chunks(int(chosen.get(PP, 1)))}, chosen)
            if changes is not None:
                words = " ".join(f"{path.rpartition('.')[2]} {value}" for path, value in chosen.items())
                yield _split(chosen), changes, f"grid: {words}"


Split = tuple[int, ...]
"""tp, cp, pp, ep and micro-batch."""


def _split(chosen: Changes) -> Split:
    return tuple(int(chosen.get(path, 1)) for path in (*DEGREES, MICRO_BATCH))


def _order(split: Split) -> tuple[float, ...]:
    """Least split first; of those, what divides layers and stages evenly, small micro-batches, many expert ranks."""
    tp, cp, pp, ep, micro = split
    return tp * cp * pp, max(tp * cp / pp, pp / (tp * cp)), micro, -ep


def _beaten(split: Split, others: Sequence[Split]) -> bool:
    return any(all(a <= b for a, b in zip(o[:-1], split[:-1], strict=True)) and o[-1] >= split[-1] for o in others)
