"""Looped breadth-first: every micro-batch through one chunk before the next chunk (Lamy-Poirier, 2023)."""

from __future__ import annotations

from windtunnel.schedule.action import Rows
from windtunnel.schedule.base import Request, Schedule, each, looped


def rows(request: Request) -> Rows:
    """All forwards chunk by chunk, then all backwards from the last chunk and the last micro-batch down.

    m·v chunks in flight. The direction of the backwards is that of torch.distributed.pipelining.
    """
    m, chunks = request.num_microbatches, range(request.virtual_stages)
    forwards = [action for chunk in chunks for action in each("F", m, chunk)]
    backwards = [action for chunk in reversed(chunks) for action in reversed(each("BW", m, chunk))]
    return (tuple(forwards + backwards),) * request.num_stages


LOOPED_BFS = Schedule(name="looped_bfs", rows=rows, placement=looped, virtual_stages=None)
