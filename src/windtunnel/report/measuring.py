"""What would be measured, what was, and how two profiles differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from rich.console import Group, RenderableType
from rich.text import Text

from windtunnel.cost.profile import BYTES, CALIBRATION, Change, Entry, Key
from windtunnel.report.figures import percent, signed_percent
from windtunnel.report.tables import table
from windtunnel.units import human_bytes, human_seconds

SHOWN = 30
"""Rows on a screen; the JSON document has all."""


class Planned(Protocol):
    """A task of a measuring session."""

    @property
    def label(self) -> str: ...
    @property
    def share(self) -> float: ...
    @property
    def uncertainty(self) -> float: ...
    @property
    def value(self) -> float: ...


class Done(Protocol):
    """A result of a measuring session."""

    @property
    def task(self) -> Planned: ...
    @property
    def entries(self) -> tuple[Entry, ...]: ...
    @property
    def warning(self) -> str: ...


def plan_document(tasks: Sequence[Planned]) -> list[dict[str, Any]]:
    """``measure --dry-run --json``: tasks, most valuable first."""
    return [
        {"label": task.label, "share": task.share, "uncertainty": task.uncertainty, "value": task.value}
        for task in tasks
    ]


def plan_text(tasks: Sequence[Planned]) -> RenderableType:
    """What to measure and why: the share of the step that stands on it, how well it is known, and the product."""
    rows = [
        (_short(task.label), percent(task.share), percent(task.uncertainty), percent(task.value))
        for task in tasks[:SHOWN]
    ]
    left = [Text(f"and {len(tasks) - SHOWN} more", style="dim")] if len(tasks) > SHOWN else []
    return Group(table(("measure", "share of step", "known to", "value"), rows, title="Most valuable first"), *left)


def _short(label: str, width: int = 58) -> str:
    return label if len(label) <= width else label[: width - 1] + "…"


def result_line(result: Done) -> str:
    """One result as it comes in."""
    if result.warning:
        return f"warning: {result.warning}"
    times = ", ".join(f"{_what(entry.key)} {amount(entry.key, entry.seconds)}" for entry in result.entries)
    remarks = {remark for entry in result.entries for remark in entry.remarks}
    worst = max(entry.spread for entry in result.entries)
    return f"{result.task.label}: {times} ± {percent(worst)}{''.join(f'; {remark}' for remark in sorted(remarks))}"


def amount(key: Key, figure: float) -> str:
    """An entry's figure with its unit: seconds, bytes or none."""
    if key.op.startswith(BYTES):
        return human_bytes(figure)
    return f"{figure:.3g}" if key.op.startswith(CALIBRATION) else human_seconds(figure)


def _what(key: Key) -> str:
    return key.op.split("/")[1] if key.op.startswith(BYTES) else key.phase


def results_document(results: Sequence[Done], out: str) -> dict[str, Any]:
    """``measure --json``."""
    return {
        "out": out,
        "measured": sum(len(result.entries) for result in results),
        "warnings": [result.warning for result in results if result.warning],
    }


def results_text(results: Sequence[Done], out: str) -> RenderableType:
    """How much was measured, and what was lost."""
    entries = sum(len(result.entries) for result in results)
    lost = [Text(f"warning: {result.warning}", style="yellow") for result in results if result.warning]
    return Group(Text(f"{entries} entries measured into {out}"), *lost)


def diff_document(changes: Sequence[Change]) -> list[dict[str, Any]]:
    """``profile diff --json``."""
    return [
        {"op": c.key.op, "pass": c.key.phase, "shape": dict(c.key.shape), "old": c.old, "new": c.new, "ratio": c.ratio}
        for c in changes
    ]


def diff_text(changes: Sequence[Change]) -> RenderableType:
    """Largest change first."""
    both = [change for change in changes if change.ratio is not None]
    rows = [_change(change) for change in changes[:SHOWN]]
    return Group(
        table(("entry", "old", "new", "change"), rows),
        Text(f"{len(both)} entries in both, {len(changes) - len(both)} in one alone", style="dim"),
    )


def _change(change: Change) -> tuple[str, str, str, str]:
    old, new = ("·" if value is None else amount(change.key, value) for value in (change.old, change.new))
    ratio = "" if change.ratio is None else signed_percent(change.ratio - 1)
    return _spelled(change.key), old, new, ratio


def _spelled(key: Key) -> str:
    return " ".join((key.op, key.phase, *(f"{name} {size:g}" for name, size in key.shape)))[:60]
