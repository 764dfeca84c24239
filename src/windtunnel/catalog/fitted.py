"""An accelerator's data file with figures that a profile fits: everything else as it is, comments and order too."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap

from windtunnel.calibration.from_profile import Fit
from windtunnel.catalog.files import data_file
from windtunnel.cost.profile import Profile
from windtunnel.job.cluster import CollectiveFit

SHOWN = 4
"""Significant digits of a fitted figure."""


def accelerator_text(
    name: str, kernel: str, fits: Sequence[Fit], curves: Sequence[CollectiveFit], profile: Profile
) -> str:
    """The data file of catalog accelerator ``name`` with ``fits``, those of attention for ``kernel``, and ``curves``.

    The source of every group that changed says what it was measured on, on how many entries, and how far off they are.
    """
    yaml = YAML()
    yaml.width = 10_000
    yaml.indent(mapping=2, sequence=4, offset=2)
    found: Any = yaml.load(data_file("accelerators", f"{name}.yaml").read_text(encoding="utf-8"))
    for fit in fits:
        _set(found, kernel, fit)
        found["source"][fit.path.partition(".")[0]] = _certificate(fit, profile)
    if curves:
        _lay_over(found["scale_up"].setdefault("fits", []), curves)
        found["source"]["fits"] = f"{_where(profile)}: latency and bandwidth of least relative squares"
    text = io.StringIO()
    yaml.dump(found, text)
    return text.getvalue()


def _set(found: Any, kernel: str, fit: Fit) -> None:
    group, _, figure = fit.path.partition(".")
    if group == "attention":
        entry = next((entry for entry in found["attention"] if entry["kernel"] == kernel), found["attention"][0])
        entry[figure] = _short(fit.new)
    elif figure:
        found[group][figure] = _short(fit.new)
    else:
        found[group] = _short(fit.new)


def _lay_over(known: Any, curves: Sequence[CollectiveFit]) -> None:
    """Measured curves in the place of those of the same collective and ranks, or at the end."""
    for curve in curves:
        line = CommentedMap({
            "op": curve.op, "ranks": curve.ranks, "latency": f"{curve.latency * 1e6:.4g} us", "root": curve.root,
            "bandwidth": f"{curve.bandwidth / 1e9:.4g} GB/s",
        })  # fmt: skip
        line.fa.set_flow_style()
        same = [place for place, fit in enumerate(known) if (fit["op"], fit["ranks"]) == (curve.op, curve.ranks)]
        if same:
            known[same[0]].update(line)
        else:
            known.append(line)


def _certificate(fit: Fit, profile: Profile) -> str:
    return (
        f"{_where(profile)}: {fit.path} on {fit.entries} entries, median residual {100 * fit.residual_after:.1f} %, "
        f"{100 * fit.residual_before:.1f} % with {fit.old:g} before"
    )


def _where(profile: Profile) -> str:
    date, torch = dict(profile.method).get("date", "an unknown date"), dict(profile.software).get("torch", "unknown")
    return f"windtunnel calibrate, a profile of {profile.device_name} on {date} with torch {torch}"


def _short(value: float) -> float:
    return float(f"{value:.{SHOWN}g}")
