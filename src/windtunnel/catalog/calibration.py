"""What calibration reads and writes beside the constants: which runs may speak, and errors of comparable runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import log
from typing import TYPE_CHECKING, Any, NamedTuple

from windtunnel.calibration.intervals import ErrorTable, Group, Spreads, with_interval, with_measured_interval
from windtunnel.catalog.constants import FILE, certificates
from windtunnel.catalog.files import data_file, load_data
from windtunnel.projection.result import Projection

if TYPE_CHECKING:
    from windtunnel.calibration.fit import Refitted

ERRORS = "errors.json"
_FITTED_LINE = re.compile(r"  (\w+): \{value: .*?, kind: \w+, (source: \".*?\", bounds: .*?, neutral: .*?), fitted: ")
NARROWEST, WIDEST = 0.02, 0.2
"""Least and largest spread of a constant's logarithm: refits that agree exactly do not make it exact."""


class Evidence(NamedTuple):
    """``doubtful``: series or ids whose speed says nothing, and why, ``doubtful_memory`` those whose peak does not;
    ``only``: sources that speak for some constants only."""

    doubtful: Mapping[str, str]
    doubtful_memory: Mapping[str, str]
    only: Mapping[str, tuple[str, ...]]


def evidence() -> Evidence:
    """Which runs may speak for which constants."""
    found: Any = load_data("calibration", "evidence.yaml")
    only = {source: tuple(names) for source, names in found["only"].items()}
    return Evidence(found["doubtful"], found["doubtful_memory"], only)


@lru_cache(maxsize=1)
def error_table() -> ErrorTable:
    """Errors of comparable runs, as the last calibration left them."""
    found: Any = load_data("calibration", ERRORS)
    return ErrorTable(
        groups={
            name: Group(n=group["n"], low=tuple(group["low"]), high=tuple(group["high"]))
            for name, group in found["groups"].items()
        },
        accelerators=frozenset(found["accelerators"]),
        frameworks=frozenset(found["frameworks"]),
        common=found["common"],
        run=found["run"],
    )


def with_uncertainty(projection: Projection) -> Projection:
    """The projection with the interval that comparable runs give its step time."""
    return with_interval(projection, error_table())


def with_measured_uncertainty(projection: Projection, spread: tuple[float, float]) -> Projection:
    """The projection with the interval of its measurements, and of comparable runs for what was simulated."""
    return with_measured_interval(projection, spread, error_table())


def spreads() -> Spreads:
    """How far a constant, a software on an accelerator, and a run may be off; see ``calibration.anchor``."""
    table = error_table()
    ranges = {
        known.name: log(known.fitted.range[1] / known.fitted.range[0]) / 2
        for known in certificates()
        if known.fitted is not None and known.fitted.range is not None
    }
    return Spreads(
        constants={name: min(max(spread, NARROWEST), WIDEST) for name, spread in ranges.items()},
        common=table.common,
        run=table.run,
    )


def errors_document(table: ErrorTable) -> dict[str, Any]:
    """The content of the file of errors; logarithms to four digits."""
    return {
        "source": "windtunnel calibrate: log(measured / projected step time) of runs whose source was left out; "
        "low and high are the errors beyond which 10, 5 and 2.5 % of the runs lie",
        "groups": {
            name: {"n": group.n, "low": [round(x, 4) for x in group.low], "high": [round(x, 4) for x in group.high]}
            for name, group in sorted(table.groups.items())
        },
        "common": round(table.common, 4),
        "run": round(table.run, 4),
        "accelerators": sorted(table.accelerators),
        "frameworks": sorted(table.frameworks),
    }


def constants_text(refitted: Iterable[Refitted]) -> str:
    """The shipped file of constants with the values and certificates of a refit, everything else as it is."""
    born = {constant.name: constant for constant in refitted}
    lines, group = [], ""
    for line in data_file("calibration", FILE).read_text(encoding="utf-8").splitlines():
        heading = re.fullmatch(r"(\w+):", line)
        group = heading[1] if heading else group
        entry = re.match(
            r"  (\w+): \{value: .*?, kind: \w+, (source: \".*?\", bounds: .*?, neutral: .*?), fitted: ", line
        )
        constant = born.get(f"{group}.{entry[1]}") if entry else None
        lines.append(line if entry is None or constant is None else _entry(entry[1], entry[2], constant))
    return "\n".join(lines) + "\n"


def _entry(name: str, kept: str, constant: Refitted) -> str:
    low, high = constant.range
    certificate = (
        f"on: [{', '.join(constant.on)}], records: {constant.records}, residual: {constant.residual:.3f}, "
        f"range: [{low:.3g}, {high:.3g}], helps: {constant.helps:.5f}, error: {constant.error:.5f}, "
        f"better: {constant.better}, worse: {constant.worse}"
    )
    return f"  {name}: {{value: {constant.value:.4g}, kind: {constant.kind}, {kept}, fitted: {{{certificate}}}}}"
