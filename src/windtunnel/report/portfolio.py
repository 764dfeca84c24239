"""A portfolio as one table and one document: a row for each job in each place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from windtunnel.report.figures import percent, shown, signed_percent, thousands
from windtunnel.report.tables import table
from windtunnel.units import human_seconds


def portfolio_document(rows: Sequence[Mapping[str, Any]], seconds: float, *, interrupted: bool) -> dict[str, Any]:
    """Rows as they were answered; ``seconds`` of wall time in all."""
    return {"rows": [dict(row) for row in rows], "seconds": seconds, "interrupted": interrupted}


def portfolio_text(document: Mapping[str, Any]) -> RenderableType:
    """The rows that have an answer as a table, then why the others have none."""
    rows = document["rows"]
    answered = [row for row in rows if row["best"] is not None]
    objective = next((row["objective"] for row in answered), None)
    counted = [] if objective is None or objective["names"] == ["throughput"] else objective["names"]
    headers = ["job", "accelerators", "best", "gain", "tokens/s each", "MFU", *counted, "calls"]
    found: list[RenderableType] = []
    if answered:
        found.append(table(headers, [_row(row, counted) for row in answered], left=2))
    units = dict(zip(objective["names"], objective["units"], strict=True)) if objective is not None else {}
    found += [Text(f"{name}: {units[name]}") for name in counted]
    found += [Text(f"{_title(row)}: the baseline is {_verdict(row)} on memory") for row in answered if _verdict(row)]
    found += [Text(f"{_title(row)}: {_why(row)}", style="yellow") for row in rows if row["best"] is None]
    found.append(Text(f"{len(answered)} of {len(rows)} rows in {human_seconds(document['seconds'])}", style="dim"))
    return Group(*found)


def _verdict(row: Mapping[str, Any]) -> str:
    """Where the baseline does not fit, its step is none that a plan that fits must beat."""
    verdict = row["baseline"]["verdict"]
    return "" if verdict == "fits" else str(verdict)


def _row(row: Mapping[str, Any], counted: Sequence[str]) -> list[str]:
    best, calls = row["best"], f"{row['study']['calls']:,}"
    values = ["" if value is None else f"{value:.4g}" for value in row["objective"]["best"]] if counted else []
    return [
        _title(row),
        f"{best['num_accelerators']:,} {row['accelerator']}",
        human_seconds(best["step_time"]),
        signed_percent(row["gain"]),
        thousands(best["tokens_per_second_per_accelerator"]),
        percent(best["mfu"]),
        *values,
        "all" if row["certificate"] == "exhaustive" else calls,
    ]


def _title(row: Mapping[str, Any]) -> str:
    """The job and what it was put in, but for what other columns show."""
    hidden = ("cluster.accelerator", "cluster.num_accelerators") if row["best"] is not None else ()
    places = [
        f"{path.rpartition('.')[2]}={shown(value)}" for path, value in row["across"].items() if path not in hidden
    ]
    return " ".join([row["name"], *places])


def _why(row: Mapping[str, Any]) -> str:
    if row["error"] is None:
        return f"{row['status']} within {row['study']['calls']:,} calls"
    fault = row["error"]["faults"][0]
    where = f"{fault['path']} = {fault['value']}" if fault["value"] else fault["path"]
    return f"{where}: {fault['rule']}; {fault['remedy']}"
