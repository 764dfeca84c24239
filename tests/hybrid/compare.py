"""Projections against what two ranks really took."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from itertools import combinations

from jobs import job_of
from ranks import profile_of

from windtunnel.projection.measured import project_measured
from windtunnel.projection.project import project

DECIDED = 0.02
"""Relative difference of two real steps beyond which their order counts."""


@dataclass(frozen=True)
class Row:
    """Step seconds of one configuration: real, projected with the profile, projected without."""

    name: tuple[str, str]
    real: float
    measured: float
    simulated: float


@dataclass(frozen=True)
class Summary:
    median: float
    p90: float
    ordered: float


def rows(truth, samples) -> list[Row]:
    """Every configuration, real steps at the median pace of all that was timed."""
    middle = statistics.median(pace for series in (*truth.values(), *samples.values()) for _, pace in series)
    profile = profile_of(at_pace(samples, middle))
    found = []
    for name, series in at_pace(truth, middle).items():
        job = job_of(*name)
        step = project_measured(job, profile)[0].step_time
        found.append(Row(name, statistics.median(s for s, _ in series), step, project(job).step_time))
    return found


def at_pace(timed, middle: float):
    """Samples as they would have been at one pace."""
    return {key: [(seconds / pace * middle, middle) for seconds, pace in series] for key, series in timed.items()}


def summary(found: list[Row], which: str) -> Summary:
    """Median and 90th percentile of the absolute relative error, and the share of decided pairs in order."""
    errors = sorted(abs(getattr(row, which) / row.real - 1) for row in found)
    pairs = [(a, b) for a, b in combinations(found, 2) if abs(a.real / b.real - 1) > DECIDED]
    ordered = sum((a.real < b.real) == (getattr(a, which) < getattr(b, which)) for a, b in pairs)
    return Summary(statistics.median(errors), statistics.quantiles(errors, n=10)[-1], ordered / len(pairs))


def table(found: list[Row]) -> str:
    """One line a configuration, then the summaries."""
    lines = [f"{'model':<9}{'plan':<8}{'real':>9}{'measured':>10}{'error':>8}{'simulated':>11}{'error':>8}"]
    for row in found:
        errors = (row.measured / row.real - 1, row.simulated / row.real - 1)
        lines.append(
            f"{row.name[0]:<9}{row.name[1]:<8}{row.real * 1e3:7.0f}ms{row.measured * 1e3:8.0f}ms{100 * errors[0]:7.1f}%"
            f"{row.simulated * 1e3:9.0f}ms{100 * errors[1]:7.1f}%"
        )
    for which in ("measured", "simulated"):
        s = summary(found, which)
        lines.append(
            f"{which}: median {100 * s.median:.1f} %, p90 {100 * s.p90:.1f} %, ordered {100 * s.ordered:.0f} % of pairs"
        )
    return "\n".join(lines)
