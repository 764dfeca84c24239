"""All schedules by name: whether one applies, where it puts the chunks, and its order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from windtunnel.errors import Fault, FormatError, LegalityError
from windtunnel.schedule.action import Order, Placement
from windtunnel.schedule.base import Costs, Request, Schedule
from windtunnel.schedule.custom import CUSTOM
from windtunnel.schedule.dualpipe import DUALPIPE
from windtunnel.schedule.dualpipe_v import DUALPIPE_V
from windtunnel.schedule.ep_overlap import EP_OVERLAP
from windtunnel.schedule.gpipe import GPIPE
from windtunnel.schedule.interleaved_1f1b import INTERLEAVED_1F1B
from windtunnel.schedule.interleaved_zb import INTERLEAVED_ZB
from windtunnel.schedule.looped_bfs import LOOPED_BFS
from windtunnel.schedule.one_f_one_b import ONE_F_ONE_B
from windtunnel.schedule.v_half import V_HALF
from windtunnel.schedule.v_min import V_MIN
from windtunnel.schedule.zb_h1 import ZB_H1
from windtunnel.schedule.zb_heuristic import ZB_HEURISTIC
from windtunnel.schedule.zbv import ZBV

SCHEDULES: tuple[Schedule, ...] = (
    GPIPE, ONE_F_ONE_B, INTERLEAVED_1F1B, LOOPED_BFS, EP_OVERLAP, ZB_H1, ZB_HEURISTIC, INTERLEAVED_ZB,
    ZBV, V_HALF, V_MIN, DUALPIPE, DUALPIPE_V, CUSTOM,
)  # fmt: skip


def schedule_names() -> tuple[str, ...]:
    """Names of all schedules, in the order of the job format."""
    return tuple(schedule.name for schedule in SCHEDULES)


def find(name: str) -> Schedule:
    """The schedule called ``name``. Raises FormatError."""
    for schedule in SCHEDULES:
        if schedule.name == name:
            return schedule
    raise FormatError(Fault("schedule", name, "no such schedule", f"choose one of {', '.join(schedule_names())}"))


def applicable(
    name: str,
    num_stages: int,
    num_microbatches: int,
    virtual_stages: int = 1,
    microbatch_group_size: int | None = None,
    memory_cap: int | None = None,
    orders: Sequence[Sequence[str]] | None = None,
) -> str | None:
    """None where ``name`` can run p stages of v chunks over m micro-batches, else the sentence that says why not."""
    schedule = find(name)
    request = Request(
        num_stages=num_stages,
        num_microbatches=num_microbatches,
        virtual_stages=virtual_stages,
        microbatch_group_size=microbatch_group_size,
        memory_cap=memory_cap,
        orders=_frozen(orders),
    )
    return _obstacle(schedule, _effective(schedule, request))


def placement(name: str, num_stages: int, virtual_stages: int = 1) -> Placement:
    """``placement[rank][chunk]`` is the global chunk.

    A schedule with a fixed number of chunks ignores ``virtual_stages``. Raises FormatError for an unknown name.
    """
    schedule = find(name)
    return schedule.placement(num_stages, schedule.virtual_stages or virtual_stages)


def build_order(
    name: str,
    num_stages: int,
    num_microbatches: int,
    virtual_stages: int = 1,
    microbatch_group_size: int | None = None,
    memory_cap: int | None = None,
    orders: Sequence[Sequence[str]] | None = None,
    costs: Costs | None = None,
    all_forward_at_m_equals_p: bool = True,
) -> Order:
    """The order of ``name``; the same object for the same request.

    V-shaped schedules imply two chunks per stage. ``memory_cap`` counts micro-batches of a stage and ``costs`` are
    seconds of F, B, W of a stage and of a hop (``zb_heuristic``, which weighs them; default 1, 1, 1, 0), ``orders`` are
    the tokens of each rank (``custom``), ``all_forward_at_m_equals_p`` is the warm-up of older ``interleaved_1f1b``.
    A schedule that has no use for an option ignores it.
    Raises FormatError for an unknown name, LegalityError where the schedule does not apply.
    """
    schedule = find(name)
    request = Request(
        num_stages=num_stages,
        num_microbatches=num_microbatches,
        virtual_stages=virtual_stages,
        microbatch_group_size=microbatch_group_size,
        memory_cap=memory_cap,
        orders=_frozen(orders),
        costs=costs,
        all_forward_at_m_equals_p=all_forward_at_m_equals_p,
    )
    return _build(schedule, _effective(schedule, request))


@lru_cache(maxsize=256)
def _build(schedule: Schedule, request: Request) -> Order:
    reason = _obstacle(schedule, request)
    if reason is not None:
        remedy = "change these numbers or choose another schedule"
        raise LegalityError(Fault("plan.pipeline.schedule", schedule.name, reason, remedy))
    rows, placed = schedule.rows(request), schedule.placed
    return Order(
        name=schedule.name,
        num_stages=request.num_stages,
        num_microbatches=request.num_microbatches,
        virtual_stages=request.virtual_stages,
        actions=rows,
        placement=placed(request, rows) if placed else schedule.placement(request.num_stages, request.virtual_stages),
        overlapped=() if schedule.overlapped is None else schedule.overlapped(request, rows),
    )


def _frozen(orders: Sequence[Sequence[str]] | None) -> tuple[tuple[str, ...], ...] | None:
    return None if orders is None else tuple(tuple(row) for row in orders)


def _effective(schedule: Schedule, request: Request) -> Request:
    """The request with implied chunks and without ignored options, so that equal orders are one cached object."""
    implied = schedule.virtual_stages if request.virtual_stages == 1 else None
    return Request(
        num_stages=request.num_stages,
        num_microbatches=request.num_microbatches,
        virtual_stages=implied or request.virtual_stages,
        microbatch_group_size=request.microbatch_group_size if "microbatch_group_size" in schedule.uses else None,
        memory_cap=request.memory_cap if "memory_cap" in schedule.uses else None,
        orders=request.orders if "orders" in schedule.uses else None,
        costs=request.costs if "costs" in schedule.uses else None,
        all_forward_at_m_equals_p=request.all_forward_at_m_equals_p or "all_forward_at_m_equals_p" not in schedule.uses,
    )


def _obstacle(schedule: Schedule, request: Request) -> str | None:
    for what, count in (("stage", request.num_stages), ("micro-batch", request.num_microbatches)):
        if count < 1:
            return f"needs at least one {what}, not {count}"
    return chunks_obstacle(schedule, request.virtual_stages) or schedule.obstacle(request)


def chunks_obstacle(schedule: Schedule, virtual_stages: int) -> str | None:
    """None where stages of so many chunks suit the schedule, else the sentence that says why not."""
    only = schedule.virtual_stages
    if only is not None and virtual_stages != only:
        return f"runs with {only} virtual stage{'s' * (only > 1)} per stage, not {virtual_stages}"
    if only is None and virtual_stages < schedule.min_virtual_stages:
        return f"needs {schedule.min_virtual_stages} virtual stages per stage or more, not {virtual_stages}"
    return None
