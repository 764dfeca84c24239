"""An order written by hand: the tokens of every rank."""

from __future__ import annotations

from windtunnel.schedule.action import Rows, parse_action
from windtunnel.schedule.base import Request, Schedule, looped


def rows(request: Request) -> Rows:
    """The given tokens. Raises FormatError for one that is no action; what they omit or repeat shows when they run."""
    return tuple(
        tuple(parse_action(token, f"plan.pipeline.orders[{rank}][{position}]") for position, token in enumerate(row))
        for rank, row in enumerate(request.orders or ())
    )


def obstacle(request: Request) -> str | None:
    if request.orders is None:
        return "needs orders: the tokens of every rank"
    if len(request.orders) != request.num_stages:
        return f"orders have {len(request.orders)} ranks, the pipeline {request.num_stages} stages"
    return None


CUSTOM = Schedule(
    name="custom",
    rows=rows,
    placement=looped,
    virtual_stages=None,
    min_virtual_stages=1,
    obstacle=obstacle,
    uses=frozenset({"orders"}),
)
