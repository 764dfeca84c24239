"""Executes an order of actions under given durations: what ran when, on which rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from windtunnel.schedule.action import Kind, Order


class Span(NamedTuple):
    """One action as it ran; ``chunk`` is the global chunk (0..pp·v-1), seconds from the start of the step."""

    kind: Kind
    microbatch: int
    chunk: int
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """Spans of every rank in execution order."""

    order: Order
    spans: tuple[tuple[Span, ...], ...]

    @property
    def makespan(self) -> float:
        return max((rank[-1].end for rank in self.spans if rank), default=0.0)

    def busy(self, rank: int) -> float:
        """Seconds ``rank`` spends executing."""
        return sum(span.end - span.start for span in self.spans[rank])


@dataclass(frozen=True, slots=True)
class ChunkDurations:
    """Seconds of F, B and W of one global chunk for one micro-batch."""

    forward: float
    backward_input: float
    backward_weight: float


def execute(order: Order, durations: Sequence[ChunkDurations], transfer: float) -> Timeline:
    """Run ``order``; an action starts when its rank is free and its inputs have arrived.

    ``durations[chunk]`` is indexed by global chunk; ``transfer`` seconds pass between ranks on each edge.
    Raises LegalityError naming the cycle when the order deadlocks.
    """
    raise NotImplementedError
