"""One job under every schedule, as a table and as the document of ``project --schedule all``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from windtunnel.projection.schedules import ScheduleChoice
from windtunnel.report.figures import percent, signed_percent
from windtunnel.report.tables import table
from windtunnel.units import human_bytes, human_seconds


def schedules_document(choices: Sequence[ScheduleChoice]) -> dict[str, Any]:
    """Every choice, fastest first."""
    return {
        "schedules": [
            {
                "name": choice.name,
                "virtual_stages": choice.virtual_stages,
                "step_time": choice.step_time,
                "bubble_fraction": choice.bubble_fraction,
                "peak_device": choice.peak_device,
                "verdict": choice.verdict,
                "applicable": choice.applicable,
                "why": choice.why,
            }
            for choice in choices
        ]
    }


def schedules_text(choices: Sequence[ScheduleChoice], current: float) -> RenderableType:
    """Applicable schedules against ``current`` seconds, the job's own step time; then why the others cannot run."""
    rows = [
        [
            choice.name,
            str(choice.virtual_stages),
            human_seconds(choice.step_time),
            signed_percent(current / choice.step_time - 1),
            percent(choice.bubble_fraction or 0.0),
            human_bytes(choice.peak_device or 0.0),
            choice.verdict or "",
        ]
        for choice in choices
        if choice.step_time is not None
    ]
    headers = ["schedule", "chunks", "step time", "tokens/s", "bubble", "peak memory", "verdict"]
    refused = [choice for choice in choices if not choice.applicable]
    return Group(
        table(headers, rows),
        *[
            Text(f"{c.name} with {c.virtual_stages} chunks a stage cannot run: {c.why}", style="yellow")
            for c in refused
        ],
    )
