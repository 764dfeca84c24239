"""Projections against what two ranks really took."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from itertools import combinations

from jobs import job_of
from ranks import Block, profile_of, slowed_by_traffic

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


def rows(blocks: dict[tuple[str, str], list[Block]]) -> list[Row]:
    """Every configuration: the median real step, and that step times the median ratio of projection to step."""
    slowed = slowed_by_traffic(blocks)
    found = []
    for name, series in blocks.items():
        job = job_of(*name)
        ratios = [project_measured(job, profile_of(each.samples, slowed))[0].step_time / each.real for each in series]
        real = statistics.median(each.real for each in series)
        found.append(Row(name, real, real * statistics.median(ratios), project(job).step_time))
    return found


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
