"""1F1B with expert traffic hidden: a forward runs beside the backward of an earlier micro-batch.

One forward more than in 1F1B comes first, so that no pair waits for itself (megatron-core, combined 1F1B).
"""

from __future__ import annotations

from windtunnel.schedule import interleaved_1f1b
from windtunnel.schedule.action import Rows
from windtunnel.schedule.base import Request, Schedule, grouped, looped, one_forward_one_backward


def warmup(request: Request, rank: int) -> int:
    """Forwards before the first pair: 2(p-1-r) + (v-1)N and one more, all m·v at most, at m = p too.

    megatron-core, ``get_pp_rank_microbatches`` in pipeline_parallel/schedules.py, which needs v > 1 where p > 1; the
    same count for v = 1 is ours: two per hop, because a pair hands on its results only when both are done.
    """
    p, m, v = request.num_stages, request.num_microbatches, request.virtual_stages
    return min(2 * (p - 1 - rank) + (v - 1) * request.group_size + 1, m * v)


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
