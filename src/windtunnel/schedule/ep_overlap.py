"""1F1B with expert traffic hidden: a forward runs beside the backward of an earlier micro-batch.

One forward more than in 1F1B comes first, so that no pair waits for itself (megatron-core, combined 1F1B).
"""

from __future__ import annotations

from windtunnel.schedule import interleaved_1f1b
from windtunnel.schedule.action import Rows
from windtunnel.schedule.base import Request, Schedule, grouped, looped, one_forward_one_backward


def warmup(request: Request, rank: int) -> int:
    """Forwards before the first pair: those of interleaved 1F1B, for any v, and one more.

    Two per hop also where v = 1: a pair hands on its results only when both are done.
    """
    total = request.num_microbatches * request.virtual_stages
    return min(interleaved_1f1b.warmup(request, rank) + 1, total)


def rows(request: Request) -> Rows:
    forwards, backwards = grouped(request, "F"), grouped(request, "BW")
    return tuple(
        one_forward_one_backward(forwards, backwards, warmup(request, rank)) for rank in range(request.num_stages)
    )


def overlapped(request: Request, spelled: Rows) -> tuple[tuple[int, ...], ...]:
    """Positions of the forwards of the steady state; the backward beside each follows it."""
    return tuple(
        tuple(range(warmup(request, rank), len(row) - warmup(request, rank), 2)) for rank, row in enumerate(spelled)
    )


def obstacle(request: Request) -> str | None:
    return None if request.virtual_stages == 1 else interleaved_1f1b.obstacle(request)


EP_OVERLAP = Schedule(
    name="1f1b_ep_overlap",
    rows=rows,
    placement=looped,
    virtual_stages=None,
    min_virtual_stages=1,
    obstacle=obstacle,
    uses=frozenset({"microbatch_group_size"}),
    overlapped=overlapped,
)
