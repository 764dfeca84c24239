"""V-Half: about half of the activations of 1F1B on every rank (Qi et al., 2024)."""

from __future__ import annotations

from windtunnel.schedule.action import Rows
from windtunnel.schedule.base import Request, Schedule, v_shaped
from windtunnel.schedule.v_pattern import squeezed_rows


def rows(request: Request) -> Rows:
    """Forwards descend two slots a rank; the gap before the turn back avoids collisions where p is even."""
    p = request.num_stages
    gap = 3 if p % 2 == 0 else 0
    seeds = [(2 * r, 3 * p - r - 2, 3 * p + gap + 2 * r - 1, 6 * p + gap - r - 2) for r in range(p)]
    return squeezed_rows(seeds, request.num_microbatches)


V_HALF = Schedule(name="v_half", rows=rows, placement=v_shaped, virtual_stages=2)
