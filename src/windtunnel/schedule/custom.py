"""An order written by hand: the tokens of every rank."""

from __future__ import annotations

from windtunnel.errors import LegalityError
from windtunnel.schedule.action import Order, Placement, Rows, parse_action
from windtunnel.schedule.base import Request, Schedule, bidirectional, looped, v_shaped
from windtunnel.schedule.dependencies import compile_order


def rows(request: Request) -> Rows:
    """The given tokens. Raises FormatError for one that is no action; what they omit or repeat shows when they run."""
    return tuple(
        tuple(parse_action(token, f"plan.pipeline.orders[{rank}][{position}]") for position, token in enumerate(row))
        for rank, row in enumerate(request.orders or ())
    )


def placed(request: Request, spelled: Rows) -> Placement:
    """Looped, or where only that runs, along a V (two chunks per stage) or from both ends (whole stages)."""
    p, v = request.num_stages, request.virtual_stages
    candidates = [looped(p, v)]
    if v == 1 and p % 2 == 0:
        candidates.append(bidirectional(p))
    if v == 2:
        candidates.append(v_shaped(p))
    return next((held for held in candidates if _runs(request, spelled, held)), candidates[0])


def _runs(request: Request, spelled: Rows, held: Placement) -> bool:
    order = Order("custom", request.num_stages, request.num_microbatches, request.virtual_stages, spelled, held)
    try:
        compile_order(order)
    except LegalityError:
        return False
    return True


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
    placed=placed,
)
