"""DualPipeV: DualPipe cut in half along its symmetry, two chunks per rank along a V (DeepSeek-AI, Sea AI Lab, 2025).

Here is the pattern of one rank that both share. A *direction* is 0 for what enters at the rank's nearer end and 1 for
what comes back: the local chunk for DualPipeV, the way through the pipe for DualPipe.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from functools import lru_cache

from windtunnel.schedule.action import Action, Kind, Rows
from windtunnel.schedule.base import Request, Schedule, v_shaped


@dataclass(frozen=True, slots=True)
class Pattern:
    """Actions with the direction in place of the chunk; positions of forwards that run beside the next action."""

    actions: tuple[Action, ...]
    overlapped: tuple[int, ...]


@dataclass(slots=True)
class _Row:
    """A rank's row under construction: micro-batches count up per kind and direction, deferred weights queue up."""

    actions: list[Action] = field(default_factory=list)
    overlapped: list[int] = field(default_factory=list)
    deferred: deque[Action] = field(default_factory=deque)
    counts: Counter[tuple[bool, int]] = field(default_factory=Counter)

    def _add(self, kind: Kind, direction: int) -> int:
        key = (kind == "F", direction)
        microbatch = self.counts[key]
        self.counts[key] += 1
        self.actions.append(Action(kind, microbatch, direction))
        return microbatch

    def forward(self, direction: int) -> None:
        self._add("F", direction)

    def backward(self, direction: int, *, defer: bool = False) -> None:
        """A whole backward, or its input half with the weight half queued."""
        microbatch = self._add("B" if defer else "BW", direction)
        if defer:
            self.deferred.append(Action("W", microbatch, direction))

    def weight(self) -> None:
        self.actions.append(self.deferred.popleft())

    def pair(self, forward: int, backward: int) -> None:
        """A forward beside a whole backward of the other direction."""
        self.overlapped.append(len(self.actions))
        self.forward(forward)
        self.backward(backward)


@lru_cache(maxsize=1024)
def pattern(num_ranks: int, num_microbatches: int, rank: int, *, turns: bool) -> Pattern:
    """Row of ``rank`` in a V of ``num_ranks``, for ``num_microbatches`` per direction.

    ``turns``: the rank holds the turn of the V, where the first pair would wait for itself.
    """
    row = _Row()
    outer, inner = num_ranks - rank - 1, rank + 1
    _fill(row, outer, inner)
    for step in range(num_microbatches - 2 * num_ranks + inner):
        if step == 0 and turns:
            row.forward(0)
            row.backward(1)
        else:
            row.pair(0, 1)
        row.pair(1, 0)
    _drain(row, outer, inner)
    return Pattern(tuple(row.actions), tuple(row.overlapped))


def _fill(row: _Row, outer: int, inner: int) -> None:
    for _ in range(2 * outer):
        row.forward(0)
    for _ in range(inner):
        row.forward(0)
        row.forward(1)
    for _ in range(outer):
        row.backward(1, defer=True)
        row.weight()
        row.forward(1)


def _drain(row: _Row, outer: int, inner: int) -> None:
    for _ in range(outer):
        row.backward(1)
        row.pair(1, 0)
    for step in range(2 * inner):
        # the second half of these backwards feeds the ranks that wait, so their weights come later
        row.backward(1 - step % 2, defer=step >= inner)
    for _ in range(outer):
        row.weight()
        row.backward(0, defer=True)
    while row.deferred:
        row.weight()


def _patterns(request: Request) -> list[Pattern]:
    p, m = request.num_stages, request.num_microbatches
    return [pattern(p, m, rank, turns=rank == p - 1) for rank in range(p)]


def rows(request: Request) -> Rows:
    """Bubble (p-1)(F&B + BW - 3W) of chunk durations, F&B the overlapped pair; 2p+1 chunks alive."""
    return tuple(one.actions for one in _patterns(request))


def overlapped(request: Request, _: Rows) -> tuple[tuple[int, ...], ...]:
    return tuple(one.overlapped for one in _patterns(request))


def obstacle(request: Request) -> str | None:
    p, m = request.num_stages, request.num_microbatches
    return f"needs at least 2 micro-batches per stage, not {m} for {p} stages" if m < 2 * p else None


DUALPIPE_V = Schedule(
    name="dualpipe_v", rows=rows, placement=v_shaped, virtual_stages=2, obstacle=obstacle, overlapped=overlapped
)
