"""Peak bytes of a piece of work, from its first allocation on, as the device's allocator counts them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch.profiler import ProfilerActivity, profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """Bytes the allocator gave out and held at the worst moment. A CPU's allocator holds nothing of its own."""

    allocated: int
    reserved: int


def peak(work: Callable[[], object], device: str) -> Peak:
    """The peak of ``work`` beyond what was alive before it."""
    if device == "cpu":
        allocated = _on_cpu(work)
        return Peak(allocated=allocated, reserved=allocated)
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device)
    torch.cuda.reset_peak_memory_stats(device)
    work()
    torch.cuda.synchronize(device)
    return Peak(
        allocated=torch.cuda.max_memory_allocated(device) - before[0],
        reserved=torch.cuda.max_memory_reserved(device) - before[1],
    )


def _on_cpu(work: Callable[[], object]) -> int:
    """Highest sum of what torch's profiler sees allocated and freed; it would tell of its stages on stderr."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as seen:
        work()
    events = [event for event in seen.profiler.kineto_results.events() if event.name() == "[memory]"]  # type: ignore[union-attr]
    events.sort(key=lambda event: event.start_ns())
    return max(accumulate((event.nbytes() for event in events), initial=0))
