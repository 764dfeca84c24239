"""Interleaved 1F1B: v chunks per rank shorten the bubble v-fold and send v times as often (Narayanan et al., 2021)."""

from __future__ import annotations

from windtunnel.schedule.action import Rows
from windtunnel.schedule.base import Request, Schedule, grouped, looped, one_forward_one_backward


def warmup(request: Request, rank: int) -> int:
    """Forwards before the first backward; all of them when m = p in megatron-core until 2024 (schedules.py)."""
    p, m, v = request.num_stages, request.num_microbatches, request.virtual_stages
    if m == p and request.all_forward_at_m_equals_p:
        return m * v
    return min(2 * (p - 1 - rank) + (v - 1) * request.group_size, m * v)


def rows(request: Request) -> Rows:
    """Makespan m(F+BW) + (p-1)(F+BW)/v for equal chunks when p divides m."""
    forwards, backwards = grouped(request, "F"), grouped(request, "BW")
    return tuple(
        one_forward_one_backward(forwards, backwards, warmup(request, rank)) for rank in range(request.num_stages)
    )


def obstacle(request: Request) -> str | None:
    """p <= N <= m, and the last group of m micro-batches is whole or holds at least p (megatron-core, schedules.py)."""
    p, m, group = request.num_stages, request.num_microbatches, request.group_size
    if not p <= group <= m:
        return f"needs {p} stages <= micro-batch group size {group} <= {m} micro-batches"
    rest = m % group
    if 0 < rest < p:
        return (
            f"{m} micro-batches in groups of {group} leave a last group of {rest}, "
            f"which must be empty or at least the {p} stages"
        )
    return None


INTERLEAVED_1F1B = Schedule(
    name="interleaved_1f1b",
    rows=rows,
    placement=looped,
    virtual_stages=None,
    obstacle=obstacle,
    uses=frozenset({"microbatch_group_size", "all_forward_at_m_equals_p"}),
)
