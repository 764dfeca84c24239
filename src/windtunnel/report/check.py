"""Legality on a screen: both grids, what is broken and the nearest repairs, every value nobody gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from windtunnel.report.figures import measured, shown

WIDTH = 100


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
        changes = " ".join(f"--set {path}={shown(value)}" for path, value in repair["changes"].items())
        lines.append(Text(f"    repair: {changes}", style="green"))
    return lines


def _origins(origin: Sequence[Mapping[str, Any]]) -> RenderableType:
    widest = max((len(entry["path"]) for entry in origin), default=0)
    heading = [Text("Not given, and so taken", style="bold")] if origin else []
    return Group(*heading, *[_origin(entry, widest) for entry in origin])


def _origin(entry: Mapping[str, Any], widest: int) -> Text:
    value = measured(entry["path"], entry["value"])
    text = Text.assemble(f"  {entry['path']:<{widest}}  {value:<20}  ", (f"{entry['level']}: {entry['why']}", "dim"))
    text.truncate(WIDTH, overflow="ellipsis")
    return text
