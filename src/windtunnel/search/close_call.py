"""How sure an answer is: the shape of its surroundings, and what to measure where the first plans are close."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from windtunnel.projection.compare import compare
from windtunnel.projection.result import Projection
from windtunnel.search.answer import Neighbour

CLOSE = 0.02
"""Share of the step time within which two plans are not told apart: measured pairs count as decided beyond it too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseCall:
    """Plans within reach of the best one, and the part in which the nearest of those that differ most differs.

    ``seconds`` is that part's difference: if it is wrong by that much, the order changes.
    """

    plans: int
    term: str
    seconds: float
    measurement: str


def close_call(best: Projection, others: Sequence[Projection]) -> CloseCall | None:
    """What would settle the order of plans that are close; None where the best one stands alone."""
    near = [other for other in others if other.step_time <= best.step_time * (1 + CLOSE)]
    found = [(abs(seconds), term) for delta in compare([best, *near]) for term, seconds in delta.terms.items()]
    if not found:
        return None
    seconds, term = max(found)
    return CloseCall(plans=len(near), term=term, seconds=seconds, measurement=_measurement(term))


def _measurement(term: str) -> str:
    if term in ("compute", "recompute", "optimizer", "offload"):
        return f"a profile of the {term} kernels of both plans"
    if term in ("tp", "cp", "ep", "etp", "pp", "dp"):
        return f"the {term} collectives of both plans, beside the compute they overlap"
    return "a few steps of both plans"


def shape(neighbours: Sequence[Neighbour]) -> Literal["broad", "sharp"] | None:
    """Whether most fitting plans one step away are as good; None where no plan is one step away."""
    deltas = [item.delta for item in neighbours if item.delta is not None and item.verdict == "fits"]
    if not deltas:
        return None
    return "broad" if sum(delta <= CLOSE for delta in deltas) * 2 > len(deltas) else "sharp"
