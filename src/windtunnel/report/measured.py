"""Simulated against measured: shares of evidence, and op by op."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from windtunnel.projection.evidence import OpComparison
from windtunnel.projection.in_model import PilotStep
from windtunnel.projection.result import Projection
from windtunnel.report.figures import provenance_words, signed_percent
from windtunnel.report.plain import plain
from windtunnel.report.tables import table
from windtunnel.step.parts import NAMES
from windtunnel.units import human_seconds

SHOWN = 25
"""Ops on a screen; the JSON document has all."""


def evidence_text(projection: Projection, simulated: Projection, pilots: Sequence[PilotStep] = ()) -> RenderableType:
    """How well every second of the step is known, part by part, what simulation alone says, and pilots for a check."""
    alone = human_seconds(simulated.step_time)
    ratio = signed_percent(simulated.step_time / projection.step_time - 1)
    rows = [
        Text(f"  {name:<12}{human_seconds(seconds):>9}  {provenance_words(projection.evidence[name])}")
        for name, seconds in parts(projection)
    ]
    return Group(
        Text(),
        Text.assemble(("Evidence  ", "bold"), provenance_words(projection.provenance)),
        *rows,
        Text(f"  simulated alone: {alone} a step ({ratio})", style="dim"),
        *[_pilot_line(pilot) for pilot in pilots],
    )


def _pilot_line(pilot: PilotStep) -> Text:
    beside = f", {pilot.beside} beside it" if pilot.beside else ""
    return Text(
        f"  pilot of {pilot.layers} layers{beside}: took {human_seconds(pilot.measured)}, its parts "
        f"{human_seconds(pilot.projected)} ({signed_percent(pilot.projected / pilot.measured - 1)})",
        style="dim",
    )


def parts(projection: Projection) -> list[tuple[str, float]]:
    """Parts of the step that last, in the order of its time."""
    every = [(name, getattr(projection.time, name)) for name in NAMES]
    return [(name, seconds) for name, seconds in every if seconds / projection.step_time >= 0.0005]


def evidence_document(projection: Projection) -> dict[str, dict[str, float]]:
    """``project --profile --json``: seconds of every part of the step by where they come from; they sum to the step."""
    return {
        name: {kind: share * getattr(projection.time, name) for kind, share in plain(shares).items()}
        for name, shares in projection.evidence.items()
    }


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
