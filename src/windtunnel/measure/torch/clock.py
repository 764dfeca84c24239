"""Seconds of a piece of device work: events on an accelerator, the performance counter on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import TypeVar

import torch

T = TypeVar("T")

COLD = 256 * 2**20
"""Bytes written to push operands out of the last cache: more than any part's L2."""


class Clock:
    """Times work on ``device``; ``cold``: operands of every piece have left the cache before it starts."""

    def __init__(self, device: str = "cpu", *, cold: bool = False) -> None:
        self.device = device
        self._scratch = torch.empty(COLD, dtype=torch.int8, device=device) if cold else None

    def time(self, work: Callable[[], T]) -> tuple[T, float]:
        """The result of ``work`` and its seconds; work queued before it is waited for."""
        if self._scratch is not None:
            self._scratch.zero_()
        if self.device == "cpu":
            begin = perf_counter()
            result = work()
            return result, perf_counter() - begin
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        first.record()
        result = work()
        last.record()
        torch.cuda.synchronize()
        return result, first.elapsed_time(last) / 1000
