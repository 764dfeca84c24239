"""Simulated against measured: shares of evidence, and op by op."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from windtunnel.projection.evidence import OpComparison
from windtunnel.projection.result import Projection
from windtunnel.report.figures import percent, signed_percent
from windtunnel.report.plain import plain
from windtunnel.report.tables import table
from windtunnel.units import human_seconds

SHOWN = 25
"""Ops on a screen; the JSON document has all."""


def provenance_text(projection: Projection, simulated: Projection) -> RenderableType:
    """What share of the busiest stage's seconds is known how well, and what simulation alone says."""
    shares = plain(projection.provenance)
    spelled = ", ".join(f"{name} {percent(share)}" for name, share in shares.items() if share >= 0.0005)
    alone = human_seconds(simulated.step_time)
    ratio = signed_percent(simulated.step_time / projection.step_time - 1)
    return Group(
        Text(),
        Text.assemble(("Evidence  ", "bold"), spelled),
        Text(f"          simulated alone: {alone} a step ({ratio})", style="dim"),
    )


def ops_text(rows: Sequence[OpComparison]) -> RenderableType:
    """The ops with the most seconds, simulated beside measured."""
    shown = [
        (
            f"{row.op} {row.phase}",
            row.unit,
            human_seconds(row.simulated),
            human_seconds(row.measured),
            f"{row.measured / row.simulated:.2f}" if row.simulated else "·",
            row.evidence,
        )
        for row in rows[:SHOWN]
    ]
    headers = ("op", "of", "simulated", "measured", "ratio", "evidence")
    return Group(Text(), table(headers, shown, left=2, title="Seconds of a step on the busiest stage"))


def ops_document(rows: Sequence[OpComparison]) -> list[dict[str, Any]]:
    return [plain(row) for row in rows]
