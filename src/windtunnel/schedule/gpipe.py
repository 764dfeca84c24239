"""GPipe: every forward, then every backward (Huang et al., 2019)."""

from __future__ import annotations

from windtunnel.schedule.action import Rows
from windtunnel.schedule.base import Request, Schedule, each, looped


def rows(request: Request) -> Rows:
    """F0..F(m-1) then BW0..BW(m-1) on every rank: makespan (m+p-1)(F+BW), m micro-batches in flight."""
    m = request.num_microbatches
    return (tuple(each("F", m) + each("BW", m)),) * request.num_stages


GPIPE = Schedule(name="gpipe", rows=rows, placement=looped)
