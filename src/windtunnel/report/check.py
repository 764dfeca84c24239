"""Legality on a screen: both grids, what is broken and the nearest repairs, every value nobody gave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from windtunnel.report.figures import shown
from windtunnel.report.tables import table


def check_text(document: Mapping[str, Any]) -> RenderableType:
    """Renders the document of ``check --json``."""
    legal = document["legal"]
    verdict = Text("LEGAL", style="bold green") if legal else Text("ILLEGAL", style="bold red")
    grids = [Text(f"{name:<7} grid  {_grid(grid)}") for name, grid in document["grids"].items()]
    needed = document["minimum_accelerators"]
    fewest = [] if needed is None else [Text(f"fewest accelerators for this plan: {needed:,}")]
    return Group(
        verdict,
        *grids,
        *fewest,
        *[line for violation in document["violations"] for line in _violation(violation)],
        *[Text(f"warning: {warning}", style="yellow") for warning in document["warnings"]],
        _origins(document["origin"]),
    )


def _grid(grid: Any) -> str:
    if isinstance(grid, Mapping):
        return " · ".join(f"{name} {shown(size)}" for name, size in grid.items())
    return shown(grid)


def _violation(violation: Mapping[str, Any]) -> list[Text]:
    values = ", ".join(f"{name} = {shown(value)}" for name, value in violation["values"].items())
    lines = [Text.assemble((f"✗ {violation['rule']}", "red"), f"  {violation['message']}"), Text(f"    {values}")]
    for repair in violation["repairs"]:
        changes = ", ".join(f"{path}={shown(value)}" for path, value in repair["changes"].items())
        lines.append(Text(f"    repair: --set {changes}", style="green"))
    return lines


def _origins(origin: list[Mapping[str, Any]]) -> RenderableType:
    rows = [[entry["path"], shown(entry["value"]), entry["level"], entry["why"]] for entry in origin]
    return table(["effective", "value", "level", "why"], rows, left=4) if rows else Text()
