"""DualPipe: micro-batches enter at both ends, so every rank holds two whole stages (DeepSeek-AI, 2024)."""

from __future__ import annotations

from windtunnel.schedule.action import Action, Rows
from windtunnel.schedule.base import Request, Schedule, bidirectional
from windtunnel.schedule.dualpipe_v import Pattern, pattern


def rows(request: Request) -> Rows:
    """Half of the micro-batches per direction; rank r folds to h = min(r, p-1-r) and leads with its nearer end.

    Micro-batches 0..m/2-1 go down from rank 0 on local chunk 0, the others come up from rank p-1 on local chunk 1.
    """
    p, m = request.num_stages, request.num_microbatches
    half = m // 2
    folded = [pattern(p // 2, half, min(r, p - 1 - r), first_pair_apart=r in (p // 2 - 1, p // 2)) for r in range(p)]
    return tuple(tuple(_placed(folded[r].actions, half, r >= p // 2)) for r in range(p))


def _placed(actions: tuple[Action, ...], half: int, mirrored: bool) -> list[Action]:
    """Direction 0 of a pattern is the one whose end is nearer: upward on the mirrored half of the ranks."""
    placed = []
    for kind, microbatch, direction in actions:
        upward = direction ^ mirrored
        placed.append(Action(kind, microbatch + half * upward, int(upward)))
    return placed


def overlapped(request: Request, spelled: Rows) -> tuple[tuple[int, ...], ...]:
    p, half = request.num_stages, request.num_microbatches // 2
    patterns: list[Pattern] = [
        pattern(p // 2, half, min(r, p - 1 - r), first_pair_apart=r in (p // 2 - 1, p // 2)) for r in range(len(spelled))
    ]
    return tuple(one.overlapped for one in patterns)


def obstacle(request: Request) -> str | None:
    p, m = request.num_stages, request.num_microbatches
    if p % 2 or m % 2 or m < 2 * p:
        return f"needs an even number of stages and an even number of micro-batches, at least 2 per stage, not {p} and {m}"
    return None


DUALPIPE = Schedule(name="dualpipe", rows=rows, placement=bidirectional, obstacle=obstacle, overlapped=overlapped)
