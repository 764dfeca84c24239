"""Timing two ranks beside whatever else the machine does: each step is divided by the pace of a fixed piece of work."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
import torch.distributed as dist

QUIET = 0.06
"""Seconds of the fixed piece of work on two idle cores."""
_WORK = torch.randn(384, 384)


def pace() -> float:
    """Seconds of the fixed piece of work, both ranks at once."""
    dist.barrier()
    start = time.perf_counter()
    for _ in range(24):
        _WORK @ _WORK
    return _later(time.perf_counter() - start)


def quiet_seconds(step: Callable[[], object], before: float) -> tuple[float, float]:
    """What a step would take on a quiet machine, and the pace after it; ``before`` is the pace before it."""
    dist.barrier()
    start = time.perf_counter()
    step()
    seconds = _later(time.perf_counter() - start)
    after = pace()
    return seconds * QUIET / ((before + after) / 2), after


def _later(seconds: float) -> float:
    """The longer of what both ranks took."""
    both = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(both, op=dist.ReduceOp.MAX)
    return both.item()
