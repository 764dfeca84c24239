"""1F1B: a backward follows as soon as it can, so rank r holds at most p-r micro-batches (PipeDream-flush)."""

from __future__ import annotations

from windtunnel.schedule.action import Rows
from windtunnel.schedule.base import Request, Schedule, each, looped, one_forward_one_backward


def rows(request: Request) -> Rows:
    """min(p-1-r, m) forwards, then pairs, then backwards: makespan (m+p-1)(F+BW)."""
    p, m = request.num_stages, request.num_microbatches
    forwards, backwards = each("F", m), each("BW", m)
    return tuple(one_forward_one_backward(forwards, backwards, min(p - 1 - r, m)) for r in range(p))


ONE_F_ONE_B = Schedule(name="1f1b", rows=rows, placement=looped)
