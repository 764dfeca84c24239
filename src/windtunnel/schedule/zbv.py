"""ZB-V: two chunks per rank along a V, backward split, p micro-batches alive on every rank (Qi et al., 2024)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from windtunnel.schedule.action import Action, Kind, Rows
from windtunnel.schedule.base import Request, Schedule, each, v_shaped

Step = tuple[Kind, int]
KINDS: tuple[Kind, ...] = ("F", "B", "W")
DOWN: tuple[Step, ...] = (("F", 0),)
UP: tuple[Step, ...] = (("F", 1),)
TURN_BACK: tuple[Step, ...] = (("B", 1), ("W", 1))
RETURN: tuple[Step, ...] = (("B", 0), ("W", 0))
LATE_UP: tuple[Step, ...] = (("W", 1),)
LATE_DOWN: tuple[Step, ...] = (("W", 0),)
BOTH: tuple[Step, ...] = (("B", 0), ("B", 1))


def rows(request: Request) -> Rows:
    """Makespan 3m + (p-1)/2 for F = B = W = 1 at m >= 2p-1.

    Fewer micro-batches keep the pattern of 2p-1 of them, less the actions that do not exist.
    """
    p, m = request.num_stages, request.num_microbatches
    padded = max(2 * p - 1, m)
    lanes = {(kind, chunk): each(kind, padded, chunk) for kind in KINDS for chunk in (0, 1)}
    numbered = [_numbered(_steps(p, rank, padded), lanes) for rank in range(p)]
    return tuple(tuple(row if padded == m else [action for action in row if action.microbatch < m]) for row in numbered)


def _steps(p: int, rank: int, m: int) -> list[Step]:
    """Kinds and local chunks of one rank in sequence; ``m`` is at least 2p-1."""
    up, after = rank, p - rank
    steps = [*DOWN * (2 * after - 1), *(UP + DOWN) * up, *(UP + TURN_BACK) * after]
    down_done, up_done = 2 * after - 1 + up, up + after
    while up_done < down_done or down_done < m:
        if down_done < m:
            steps += DOWN
            down_done += 1
        steps += (*RETURN, *UP, *TURN_BACK)
        up_done += 1
    steps += (*BOTH * up, *RETURN * after)
    done = Counter(steps)
    steps += (*LATE_UP * (m - done["W", 1]), *LATE_DOWN * (m - done["W", 0]))
    return steps


def _numbered(steps: list[Step], lanes: Mapping[Step, Sequence[Action]]) -> list[Action]:
    """Micro-batches count up per kind and chunk."""
    following = {step: iter(lane) for step, lane in lanes.items()}
    return [next(following[step]) for step in steps]


ZBV = Schedule(name="zbv", rows=rows, placement=v_shaped, virtual_stages=2)
