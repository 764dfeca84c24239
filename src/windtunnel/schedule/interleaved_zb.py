"""Interleaved 1F1B with the backward split; rank r delays its weight gradients by r chunks."""

from __future__ import annotations

from windtunnel.schedule.action import Rows
from windtunnel.schedule.base import Request, Schedule, grouped, looped, one_forward_one_split_backward
from windtunnel.schedule.interleaved_1f1b import obstacle


def rows(request: Request) -> Rows:
    """(v-1)N + p-1-r forwards first: half the lead of interleaved 1F1B, because a hop up the pipe takes B, not B + W.

    The order of torch.distributed.pipelining.
    """
    p, m, v = request.num_stages, request.num_microbatches, request.virtual_stages
    forwards, inputs, weights = grouped(request, "F"), grouped(request, "B"), grouped(request, "W")
    lead = (v - 1) * request.group_size
    return tuple(
        one_forward_one_split_backward(forwards, inputs, weights, min(lead + p - 1 - r, m * v), r) for r in range(p)
    )


INTERLEAVED_ZB = Schedule(
    name="interleaved_zb",
    rows=rows,
    placement=looped,
    virtual_stages=None,
    obstacle=obstacle,
    uses=frozenset({"microbatch_group_size"}),
)
