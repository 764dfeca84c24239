"""Accuracy on a screen: error by group, order within series, fits, and the records that are furthest off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from windtunnel.report.figures import percent, signed_percent
from windtunnel.report.plain import plain
from windtunnel.report.tables import table

WORST_SHOWN = 10


def validate_document(validation: object) -> dict[str, Any]:
    """``validate --json``: the rows are called records, and what they belong to is said by ``groups``."""
    found = plain(validation)
    return {
        "records": [_record(row) for row in found["rows"]],
        "groups": found["groups"],
        "series": found["series"],
        "fits": found["fits"],
    }


def _record(row: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in row.items() if key not in ("groups", "stages")}
    return kept if row["stages"] is None else kept | {"stages": row["stages"]}


def validate_text(document: Mapping[str, Any]) -> RenderableType:
    """Renders the document of ``validate --json``."""
    skipped = [row for row in document["records"] if row["skipped"]]
    fits = document["fits"]
    return Group(
        *[_groups(quantity, groups) for quantity, groups in document["groups"].items() if groups],
        *_series(document["series"]),
        Text(
            f"fits: {fits['n']} records, {fits['false_oom']} ran that should not fit, {fits['borderline']} borderline, "
            f"{fits['missed_oom']} did not fit that should"
        ),
        *_worst(document["records"]),
        *[Text(f"skipped {row['id']}: {row['skipped']}", style="yellow") for row in skipped],
    )


def _groups(quantity: str, groups: Mapping[str, Mapping[str, Any]]) -> RenderableType:
    rows = [
        [
            name, str(group["n"]), _maybe(group["mape"]), _maybe(group["median"]), _maybe(group["p90"]),
            _maybe(group["bias"], signed=True), _maybe(group["within_bar"]),
        ]
        for name, group in groups.items()
    ]  # fmt: skip
    return table([quantity, "n", "mape", "median", "p90", "bias", "within bar"], rows)


def _maybe(value: float | None, *, signed: bool = False) -> str:
    if value is None:
        return "·"
    return signed_percent(value) if signed else percent(value)


def _series(series: Mapping[str, Mapping[str, Any]]) -> list[RenderableType]:
    rows = [
        [name, str(entry["n"]), str(entry["decided"]), _maybe(entry["ordered"]), _maybe(entry["regret"])]
        for name, entry in series.items()
    ]
    return [table(["series", "n", "decided", "ordered", "regret"], rows)] if rows else []


def _worst(rows: list[Mapping[str, Any]]) -> list[RenderableType]:
    compared = [row for row in rows if row["error"] is not None]
    worst = sorted(compared, key=lambda row: -abs(row["error"]))[:WORST_SHOWN]
    cells = [[row["id"], row["quantity"], row["bar"], signed_percent(row["error"])] for row in worst]
    return [table(["furthest off", "", "bar", "error"], cells, left=3)] if cells else []


def regressions_text(worse: Sequence[tuple[str, float, float]]) -> RenderableType:
    """(figure, before, after) of everything that became worse."""
    if not worse:
        return Text("nothing is worse than in the table", style="green")
    rows = [[figure, f"{before:.4g}", f"{after:.4g}"] for figure, before, after in worse]
    return table(["worse", "before", "after"], rows)


def moves_text(moved: Sequence[tuple[str, str, float | None, float | None]]) -> RenderableType:
    """(record, quantity, error before, error after) of every record that moved."""
    rows = [
        [name, quantity, _maybe(before, signed=True), _maybe(after, signed=True)]
        for name, quantity, before, after in moved
    ]
    return table(["moved", "", "before", "after"], rows, left=2) if rows else Text()
