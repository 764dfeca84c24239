"""A projection against a measured run: how far apart they are, and which terms could explain it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from windtunnel.calibration.gap import Explains
from windtunnel.projection.result import Projection
from windtunnel.report.figures import number, percent, signed_percent
from windtunnel.report.json import projection_document
from windtunnel.report.plain import plain
from windtunnel.report.tables import table
from windtunnel.units import human_seconds

MOST_CONSTANTS = 6


def gap_document(
    projection: Projection, record: str, measured: float, parts: Sequence[Explains], constants: Sequence[Explains]
) -> dict[str, Any]:
    """``compare JOB RECORD --json``: the parts of the step and the constants that alone would close the gap."""
    return {
        "jobs": [projection_document(projection)],
        "record": record,
        "measured_step_time": measured,
        "gap": measured - projection.step_time,
        "within_interval": within_interval(projection, measured),
        "parts": plain(parts),
        "constants": plain(constants),
    }


def within_interval(projection: Projection, measured: float) -> bool | None:
    """Whether the measured step lies in the projection's interval; None without one."""
    known = projection.uncertainty
    if known is None or known.step_time is None:
        return None
    low, high = known.step_time
    return low <= measured <= high


def gap_text(
    projection: Projection, record: str, measured: float, parts: Sequence[Explains], constants: Sequence[Explains]
) -> RenderableType:
    inside = within_interval(projection, measured)
    verdict = "inside" if inside else "outside"
    head = (
        f"{record}: measured {human_seconds(measured)}, projected {human_seconds(projection.step_time)}, "
        f"{signed_percent(measured / projection.step_time - 1)}"
    )
    lines = [Text(head, style="bold")]
    if inside is not None:
        lines.append(Text(f"{verdict} the interval of 80 % of comparable runs"))
    rows = [
        [item.term, human_seconds(item.now), percent(item.now / projection.step_time), _seconds(item)] for item in parts
    ]
    fitted = [
        [item.term, number(item.now), _number(item), f"{item.spreads:.1f}" if item.spreads is not None else "·"]
        for item in constants[:MOST_CONSTANTS]
    ]
    return Group(
        *lines,
        table(["part of the step", "projected", "share", "would have to be"], rows),
        table(["constant", "is", "would have to be", "spreads away"], fitted),
    )


def _seconds(item: Explains) -> str:
    return "cannot alone" if item.needed is None else human_seconds(item.needed)


def _number(item: Explains) -> str:
    return "cannot alone" if item.needed is None else number(item.needed)
