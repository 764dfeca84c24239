"""V-Min: about a third of the activations of 1F1B on every rank, at the price of a longer step (Qi et al., 2024)."""

from __future__ import annotations

from windtunnel.schedule.action import Rows
from windtunnel.schedule.base import Request, Schedule, v_shaped
from windtunnel.schedule.v_pattern import squeezed_rows


def rows(request: Request) -> Rows:
    """Forwards descend one slot a rank; the gap before the turn back avoids collisions where 3 divides p."""
    p = request.num_stages
    gap = 2 if p % 3 == 0 else 0
    seeds = [(r, 2 * p - r - 1, 2 * p + gap + r, 4 * p + gap - r - 1) for r in range(p)]
    return squeezed_rows(seeds, request.num_microbatches)


V_MIN = Schedule(name="v_min", rows=rows, placement=v_shaped, virtual_stages=2)
