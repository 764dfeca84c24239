"""Executes an order of actions under given durations: what ran when, on which rank."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from operator import sub
from typing import Any, NamedTuple, cast, overload

from windtunnel.schedule.action import Kind, Order
from windtunnel.schedule.dependencies import Program, compile_order


class Span(NamedTuple):
    """One action as it ran; ``chunk`` is the global chunk (0..pp·v-1), seconds from the start of the step."""

    kind: Kind
    microbatch: int
    chunk: int
    start: float
    end: float


# Skips the Python-level constructor of the named tuple: a timeline holds thousands of spans.
_span = cast("Callable[[Iterable[Any]], Span]", partial(tuple.__new__, Span))


class SpanRow(Sequence[Span]):
    """The spans of one rank, made as they are read: most of what asks for a timeline reads few of them."""

    __slots__ = ("_columns",)

    def __init__(
        self,
        kinds: Sequence[Kind],
        microbatches: Sequence[int],
        chunks: Sequence[int],
        starts: Sequence[float],
        ends: Sequence[float],
    ) -> None:
        self._columns: tuple[Sequence[Any], ...] = (kinds, microbatches, chunks, starts, ends)

    def __len__(self) -> int:
        return len(self._columns[0])

    def __iter__(self) -> Iterator[Span]:
        return map(_span, zip(*self._columns, strict=True))

    @overload
    def __getitem__(self, index: int) -> Span: ...
    @overload
    def __getitem__(self, index: slice) -> SpanRow: ...
    def __getitem__(self, index: int | slice) -> Span | SpanRow:
        picked = [column[index] for column in self._columns]
        return SpanRow(*picked) if isinstance(index, slice) else _span(picked)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))

    @property
    def busy(self) -> float:
        """Seconds in which one of them runs."""
        seconds: Iterator[float] = map(sub, self._columns[-1], self._columns[-2])
        return sum(seconds)


@dataclass(frozen=True, slots=True)
class Timeline:
    """Spans of every rank in execution order."""

    order: Order
    spans: tuple[SpanRow, ...]

    @property
    def makespan(self) -> float:
        return max((rank[-1].end for rank in self.spans if rank), default=0.0)

    def busy(self, rank: int) -> float:
        """Seconds ``rank`` spends executing."""
        return self.spans[rank].busy


@dataclass(frozen=True, slots=True)
class ChunkDurations:
    """Seconds of F, B and W of one global chunk for one micro-batch."""

    forward: float
    backward_input: float
    backward_weight: float


def execute(order: Order, durations: Sequence[ChunkDurations], transfer: float | Sequence[float] = 0.0) -> Timeline:
    """Run ``order``; an action starts when its rank is free and its inputs have arrived. BW lasts B + W.

    ``durations[chunk]`` is indexed by global chunk. ``transfer`` is the seconds of one hop between neighbouring chunks
    on different ranks, one number for all or one per edge (``transfer[g]`` between global chunks g and g+1, both ways);
    a hop within a rank is free. An overlapped pair lasts the sum of its two actions (what it hides belongs in the
    durations) and hands on both results at its end; its spans are shown one after the other.
    Raises LegalityError naming the cycle when the order deadlocks.
    """
    program = compile_order(order)
    starts, ends, _ = _run(program, durations, transfer)
    for node in program.paired:
        ends[node] = starts[node + 1]
    return Timeline(order, tuple(_rows(program, starts, ends)))


def _rows(program: Program, starts: list[float], ends: list[float]) -> Iterator[SpanRow]:
    named = zip(program.kinds, program.microbatches, program.chunks, strict=True)
    for (first, end), columns in zip(pairwise(program.first), named, strict=True):
        yield SpanRow(*columns, starts[first:end], ends[first:end])


def makespan_only(
    order: Order, durations: Sequence[ChunkDurations], transfer: float | Sequence[float] = 0.0
) -> tuple[float, ...]:
    """Seconds at which each rank ends: as ``execute``, same arguments and errors, but without building spans."""
    return tuple(_run(compile_order(order), durations, transfer)[2])


def _run(
    program: Program, durations: Sequence[ChunkDurations], transfer: float | Sequence[float]
) -> tuple[list[float], list[float], list[float]]:
    """Start and end of every node, and the end of every rank: one pass over the topological order."""
    seconds = _seconds(durations)
    hops = _hops(transfer, program.num_chunks)
    starts = [0.0] * program.num_nodes
    ends = [0.0] * (program.num_nodes + 1)  # the last entry is the producer of what waits for nothing
    clocks = [0.0] * (len(program.first) - 1)
    table = zip(program.node, program.rank, program.producer, program.edge, program.slot, strict=True)
    if program.paired:
        _run_pairs(table, program.paired, seconds, hops, starts, ends, clocks)
    for node, rank, producer, edge, slot in table:
        start = clocks[rank]
        arrival = ends[producer] + hops[edge]
        if arrival > start:  # noqa: PLR1730  max() would double the time of the loop
            start = arrival
        starts[node] = start
        ends[node] = clocks[rank] = start + seconds[slot]
    return starts, ends, clocks


def _run_pairs(
    table: Iterator[tuple[int, int, int, int, int]],
    paired: frozenset[int],
    seconds: list[float],
    hops: list[float],
    starts: list[float],
    ends: list[float],
    clocks: list[float],
) -> None:
    """The pass of ``_run`` over an order with pairs: both actions start together and end together."""
    for node, rank, producer, edge, slot in table:
        start = max(clocks[rank], ends[producer] + hops[edge])
        if node not in paired:
            starts[node] = start
            ends[node] = clocks[rank] = start + seconds[slot]
            continue
        mate, _, producer_of_mate, edge_of_mate, slot_of_mate = next(table)
        start = max(start, ends[producer_of_mate] + hops[edge_of_mate])
        starts[node], starts[mate] = start, start + seconds[slot]
        ends[node] = ends[mate] = clocks[rank] = starts[mate] + seconds[slot_of_mate]


def _seconds(durations: Sequence[ChunkDurations]) -> list[float]:
    """Seconds by slot: F, B, W and BW of every chunk."""
    return [
        *(d.forward for d in durations),
        *(d.backward_input for d in durations),
        *(d.backward_weight for d in durations),
        *(d.backward_input + d.backward_weight for d in durations),
    ]


def _hops(transfer: float | Sequence[float], num_chunks: int) -> list[float]:
    """Seconds by edge; the extra last entry, 0, is the edge of what waits for nothing."""
    edges = num_chunks - 1
    if isinstance(transfer, (int, float)):
        return [transfer] * edges + [0.0]
    if len(transfer) != edges:
        raise ValueError(f"{num_chunks} chunks have {edges} edges, but {len(transfer)} transfers were given")
    return [*transfer, 0.0]
