"""A refit of the constants on a screen: values and certificates, and the errors that are left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from windtunnel.report.figures import percent
from windtunnel.report.plain import plain
from windtunnel.report.tables import table
from windtunnel.units import human_rate, human_seconds


def calibration_document(
    constants: object, summary: object, errors: Sequence[tuple[str, str, float, float, float]]
) -> dict[str, Any]:
    """``calibrate --json``: every constant with its certificate, errors by source, and those of every run as
    log(measured / projected step time): id, source, in sample, left out, with scoped constants neutral."""
    names = ("id", "source", "in_sample", "left_out", "scoped_neutral")
    return {
        "constants": plain(constants),
        "errors": plain(summary),
        "records": [dict(zip(names, row, strict=True)) for row in errors],
    }


def calibration_text(document: Mapping[str, Any]) -> RenderableType:
    """Renders the document of ``calibrate --json``."""
    rows = [
        [
            constant["name"], f"{constant['value']:.4g}", constant["kind"], str(constant["records"]),
            percent(constant["residual"]), "{:.3g} to {:.3g}".format(*constant["range"]),
            "refused" if constant["refused"] else f"{constant['helps']:.4f}",
        ]
        for constant in document["constants"]
    ]  # fmt: skip
    heads = ["constant", "value", "kind", "runs", "residual", "sources left out", "helps"]
    return Group(
        table(heads, rows),
        _errors(document["errors"]),
        Text("in sample: median and p90; left out: each source by constants fitted without it", style="dim"),
    )


def _errors(summary: Mapping[str, Any]) -> RenderableType:
    rows = [
        [name, str(entry["n"]), *[percent(figure) for pair in entry["pairs"] for figure in pair]]
        for name, entry in summary.items()
    ]
    heads = ["source", "n", "in sample", "p90", "left out", "p90", "scoped neutral", "p90"]
    return table(heads, rows)


def fits_document(accelerator: str, device: str, fits: Sequence[object], curves: Sequence[object]) -> dict[str, Any]:
    """``calibrate PROFILE --json``: figures of the accelerator's file, old and fitted, and its collectives' curves."""
    return {"accelerator": accelerator, "device": device, "fits": plain(fits), "curves": plain(curves)}


def fits_text(document: Mapping[str, Any]) -> RenderableType:
    """Renders the document of ``calibrate PROFILE --json``."""
    rows = [
        [
            fit["path"], f"{fit['old']:.3g}", f"{fit['new']:.3g}", str(fit["entries"]),
            percent(fit["residual_before"]), percent(fit["residual_after"]),
        ]
        for fit in document["fits"]
    ]  # fmt: skip
    curves = [
        [curve["op"], str(curve["ranks"]), human_seconds(curve["latency"]), human_rate(curve["bandwidth"])]
        for curve in document["curves"]
    ]
    heads = ["figure", "catalog", "fitted", "entries", "residual before", "after"]
    title = f"{document['accelerator']}, fitted on {document['device']}"
    tables = [table(heads, rows, title=title)] if rows else []
    tables += [table(["collective", "ranks", "latency", "bandwidth"], curves, title="Curves")] if curves else []
    return Group(*tables)
