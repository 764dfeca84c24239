"""Projections side by side, and the difference attributed to terms that sum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType

from windtunnel.projection.compare import Delta
from windtunnel.projection.result import Projection
from windtunnel.report.figures import percent, shown, signed_percent, thousands
from windtunnel.report.tables import table
from windtunnel.units import human_bytes, human_seconds

NOISE = 1e-5
"""Share of a step below which a term is not worth a line."""


def compare_text(names: Sequence[str], projections: Sequence[Projection], deltas: Sequence[Delta],
                 jobs: Sequence[Mapping[str, Any]]) -> RenderableType:  # fmt: skip
    """What differs, what it gives, and where the seconds went; ``jobs`` are the effective jobs as mappings."""
    return Group(_jobs(names, projections, jobs), *[_delta(names, projections, delta) for delta in deltas])


def _jobs(names: Sequence[str], projections: Sequence[Projection], jobs: Sequence[Mapping[str, Any]]) -> RenderableType:
    best = min(projection.step_time for projection in projections)
    flats = _flats(jobs)
    rows = [[path, *[shown(flat.get(path)) for flat in flats]] for path in _differing(flats)]
    rows += [
        ["step time", *[human_seconds(p.step_time) for p in projections]],
        ["against the fastest", *[signed_percent(p.step_time / best - 1) for p in projections]],
        ["tokens/s/accelerator", *[thousands(p.tokens_per_second_per_accelerator) for p in projections]],
        ["MFU", *[percent(p.mfu) for p in projections]],
        ["bubble", *[percent(p.bubble_fraction) for p in projections]],
        ["peak memory", *[human_bytes(p.memory.peak.device) for p in projections]],
        ["verdict", *[p.memory.verdict for p in projections]],
    ]
    return table(["", *names], rows)


def _delta(names: Sequence[str], projections: Sequence[Projection], delta: Delta) -> RenderableType:
    before = projections[delta.from_index].step_time
    terms = sorted(delta.terms.items(), key=lambda term: -abs(term[1]))
    rows = [
        [name, _signed(value), signed_percent(value / before)] for name, value in terms if abs(value) >= NOISE * before
    ]
    rows.append(["step time", _signed(delta.step_time), signed_percent(delta.step_time / before)])
    rows.append(["peak memory", f"{delta.peak_device / 2**30:+.1f} GiB", ""])
    return table(["", "change", "of step"], rows, title=f"{names[delta.from_index]} → {names[delta.to_index]}")


def _signed(seconds: float) -> str:
    return ("+" if seconds >= 0 else "-") + human_seconds(abs(seconds))


def _differing(flats: Sequence[Mapping[str, Any]]) -> list[str]:
    """Paths whose values are not the same in all jobs, in the order of the files."""
    paths = dict.fromkeys(path for flat in flats for path in flat)
    return [path for path in paths if any(flat.get(path) != flats[0].get(path) for flat in flats)]


def _flats(jobs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Values by path; an accelerator is spelled out only where all of them are, else its name says it."""
    spelled = all(isinstance(job["cluster"]["accelerator"], Mapping) for job in jobs if "cluster" in job)
    return [_flat(job if spelled else _with_named_accelerator(job)) for job in jobs]


def _with_named_accelerator(job: Mapping[str, Any]) -> Mapping[str, Any]:
    accelerator = job["cluster"]["accelerator"]
    name = accelerator["name"] if isinstance(accelerator, Mapping) else accelerator
    return {**job, "cluster": {**job["cluster"], "accelerator": name}}


def _flat(job: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in job.items():
        path = f"{prefix}{key}"
        flat |= _flat(value, f"{path}.") if isinstance(value, Mapping) else {path: value}
    return flat
