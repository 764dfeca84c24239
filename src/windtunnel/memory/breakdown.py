"""Bytes of one rank at its peak moment, by class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Moment = Literal["forward", "loss", "backward", "recompute", "gradient_reduction", "optimizer", "checkpoint"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """What a rank holds at a moment, class by class, in bytes; the classes sum to ``allocated``.

    ``in_flight`` counts micro-batches of a whole stage whose kept activations are alive at the moment.
    """

    moment: Moment
    in_flight: float
    weights: float
    gradients: float
    master: float
    moments: float
    activations: float
    logits: float
    buffers: float
    dispatcher: float

    @property
    def allocated(self) -> float:
        return (
            self.weights + self.gradients + self.master + self.moments
            + self.activations + self.logits + self.buffers + self.dispatcher
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBreakdown(Allocation):
    """The allocation of a rank; ``reserved`` adds the allocator, ``device`` everything outside it."""

    stage: int
    rank: int
    reserved: float
    overhead: float

    @property
    def device(self) -> float:
        return self.reserved + self.overhead
