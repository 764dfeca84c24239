"""DualPipe: micro-batches enter at both ends, so every rank holds two whole stages (DeepSeek-AI, 2024)."""

from __future__ import annotations

from windtunnel.schedule.action import Action, Rows
from windtunnel.schedule.base import Request, Schedule, bidirectional
from windtunnel.schedule.dualpipe_v import Pattern, pattern


def rows(request: Request) -> Rows:
    """Bubble (p/2-1)(F&B + BW - 3W), F&B the overlapped pair; p+1 micro-batches alive.

    Micro-batches 0..m/2-1 go down from rank 0 on local chunk 0, the others come up from rank p-1 on local chunk 1.
    """
    half = request.num_microbatches // 2
    middle = request.num_stages // 2
    return tuple(
        tuple(_placed(one.actions, half, mirrored=rank >= middle)) for rank, one in enumerate(_patterns(request))
    )


def _patterns(request: Request) -> list[Pattern]:
    """Rank r and its mirror p-1-r do the same with the directions swapped."""
    p, half = request.num_stages, request.num_microbatches // 2
    folded = [pattern(p // 2, half, rank, turns=rank == p // 2 - 1) for rank in range(p // 2)]
    return folded + folded[::-1]


def _placed(actions: tuple[Action, ...], half: int, *, mirrored: bool) -> list[Action]:
    """On the mirrored half of the ranks the nearer end is the last rank, so direction 0 is the way up."""
    placed = []
    for kind, microbatch, direction in actions:
        upward = direction ^ mirrored
        placed.append(Action(kind, microbatch + half * upward, upward))
    return placed


def overlapped(request: Request, _: Rows) -> tuple[tuple[int, ...], ...]:
    return tuple(one.overlapped for one in _patterns(request))


def obstacle(request: Request) -> str | None:
    p, m = request.num_stages, request.num_microbatches
    if p % 2 or m % 2 or m < 2 * p:
        return f"needs even numbers of stages and micro-batches and 2 micro-batches per stage, not {p} and {m}"
    return None


DUALPIPE = Schedule(name="dualpipe", rows=rows, placement=bidirectional, obstacle=obstacle, overlapped=overlapped)
