"""Bytes of one rank at its peak moment, by class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Moment = Literal["forward", "loss", "backward", "recompute", "gradient_reduction", "optimizer", "checkpoint"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBreakdown:
    """The classes sum to ``allocated``; ``reserved`` adds the allocator, ``device`` everything outside it.

    ``in_flight`` counts micro-batches of a whole stage whose kept activations are alive at the moment.
    """

    stage: int
    rank: int
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
    reserved: float
    overhead: float

    @property
    def allocated(self) -> float:
        return (
            self.weights + self.gradients + self.master + self.moments
            + self.activations + self.logits + self.buffers + self.dispatcher
        )  # fmt: skip

    @property
    def device(self) -> float:
        return self.reserved + self.overhead
