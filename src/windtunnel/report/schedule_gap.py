"""How far a schedule is from the best order of all: the document and the line of ``schedule --gap``."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from windtunnel.report.figures import number, percent
from windtunnel.schedule.action import format_action
from windtunnel.search.optimum import Gap


def gap_document(gap: Gap) -> dict[str, Any]:
    """Seconds; ``gap`` is above the best order found, ``gap_at_most`` above any, as fractions of the optimum."""
    best = gap.best
    return {
        "memory_cap": gap.memory_cap,
        "makespan": best.makespan,
        "bound": best.bound,
        "proven": best.proven,
        "gap": _fraction(gap.above, best.makespan),
        "gap_at_most": _fraction(gap.above_at_most, best.bound),
        "orders": [[format_action(action) for action in rank] for rank in best.order.actions],
    }


def gap_text(document: dict[str, Any]) -> Text:
    """One sentence: what is proven, and how far the schedule is from it."""
    under = f"with at most {number(document['memory_cap'])} micro-batches in flight"
    shortest = f"takes {number(document['makespan'])}"
    if document["proven"]:
        more = percent(document["gap"])
        distance = "and so does this one" if document["gap"] == 0 else f"this one {more} more"
        return Text(f"\nThe best order {under} {shortest}, {distance}; proven.")
    return Text(
        f"\nThe best order found {under} {shortest}; none takes less than {number(document['bound'])}, so this one is "
        f"at most {percent(document['gap_at_most'])} longer than the best (no proof in the time given)."
    )


def _fraction(seconds: float, whole: float) -> float:
    return seconds / whole if whole else 0.0
