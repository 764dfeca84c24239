"""Stages and memory built by hand."""

from __future__ import annotations

from windtunnel.memory.breakdown import MemoryBreakdown
from windtunnel.projection.result import Memory

GIB = 2.0**30


def stage(index: int, gib: float, in_flight: float) -> MemoryBreakdown:
    """A stage that holds ``gib`` of weights and of activations, 2 GiB over."""
    return MemoryBreakdown(
        stage=index, rank=2 * index, moment="backward", in_flight=in_flight, weights=gib * GIB, gradients=0.0,
        master=0.0, moments=0.0, activations=gib * GIB, logits=0.0, buffers=0.0, dispatcher=0.0,
        reserved=(2 * gib + 1) * GIB, overhead=GIB,
    )  # fmt: skip


def memory(*stages: MemoryBreakdown) -> Memory:
    return Memory(verdict="fits", interval=(0.0, 0.0), capacity=80 * GIB, stages=stages, host=0.0, host_checkpoint=0.0)
