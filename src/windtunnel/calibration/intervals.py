"""How wrong a projection may be: quantiles of the errors of comparable runs whose source was left out of the fit.

An error is log(measured / projected step time): the measured step lies at projected · exp(error).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, floor
from statistics import median

from windtunnel.dtypes import BYTES, is_quantized, operand
from windtunnel.job.job import Job
from windtunnel.projection.result import Projection, Uncertainty

LEVEL = 0.8
FEWEST = 5
"""Runs below which a group is not kept; a wider one answers for it."""
BORROWED = 20
"""Runs of the next wider group that a group's own are joined with, whatever their number: few runs say little of their
tails, and much of what makes a projection wrong is common to wider groups."""
TAILS = (0.10, 0.05, 0.025)
"""Share of runs beyond either end, by how many of accelerator and framework no run on record has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What makes jobs comparable, from general to special."""

    model: str
    precision: str
    framework: str

    def groups(self) -> tuple[str, ...]:
        """Names of the groups a job belongs to, the most special first."""
        return (
            f"{self.model} {self.precision} {self.framework}",
            f"{self.model} {self.precision}",
            self.model,
            "all",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """``low`` and ``high``: the errors beyond which each share of ``TAILS`` of its ``n`` runs lies."""

    n: int
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorTable:
    """Errors by group, and what the runs behind them ran on."""

    groups: Mapping[str, Group]
    accelerators: frozenset[str]
    frameworks: frozenset[str]
    common: float
    """Spread of what one model in one precision of one framework on one accelerator has in common."""
    run: float
    """Spread of a run about that."""

    def interval(self, job: Job) -> tuple[float, float]:
        """Errors between which ``LEVEL`` of comparable runs lie; wider for an accelerator or framework never seen."""
        kind = kind_of(job)
        unseen = (job.cluster.accelerator.name not in self.accelerators) + (kind.framework not in self.frameworks)
        group = next(self.groups[name] for name in kind.groups() if name in self.groups)
        return group.low[unseen], group.high[unseen]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spreads:
    """Standard deviations of logarithms: of each constant, of what one software on one accelerator has in common, of a
    run about that."""

    constants: Mapping[str, float]
    common: float
    run: float


def kind_of(job: Job) -> Kind:
    """A framework before fused operators is another framework."""
    compute = job.plan.precision.compute
    precision = "half" if not is_quantized(compute) else "fp4" if BYTES[operand(compute)] < 1 else "fp8"
    era = " eager" if job.software.traits.host_era == "eager" else ""
    return Kind(
        model="moe" if job.model.is_moe else "dense", precision=precision, framework=job.software.framework + era
    )


def error_table(errors: Iterable[tuple[Job, float]]) -> ErrorTable:
    """The table of jobs and the errors of their runs."""
    found = list(errors)
    members: dict[str, list[float]] = {}
    for job, error in found:
        for name in kind_of(job).groups():
            members.setdefault(name, []).append(error)
    common, run = _spreads(found)
    return ErrorTable(
        groups=_groups(members, dict.fromkeys(kind_of(job).groups() for job, _ in found)),
        accelerators=frozenset(job.cluster.accelerator.name for job, _ in found),
        frameworks=frozenset(kind_of(job).framework for job, _ in found),
        common=common,
        run=run,
    )


def _groups(members: Mapping[str, Sequence[float]], chains: Iterable[tuple[str, ...]]) -> dict[str, Group]:
    """Every group of a few runs or more, its quantiles drawn towards those of the next wider one."""
    groups: dict[str, Group] = {}
    for chain in chains:
        wider: Group | None = None
        for name in reversed(chain):
            if name not in groups and (len(members[name]) >= FEWEST or wider is None):
                groups[name] = _group(members[name], wider)
            wider = groups.get(name, wider)
    return groups


def _spreads(found: Sequence[tuple[Job, float]]) -> tuple[float, float]:
    """Standard deviations between and within the runs of one model, precision, framework and accelerator, from the
    medians of the distances: one run that is far off counts like any other."""
    members: dict[tuple[object, ...], list[float]] = {}
    for job, error in found:
        key = (job.model.name, job.plan.precision.compute, job.software.framework, job.cluster.accelerator.name)
        members.setdefault(key, []).append(error)
    centres = {key: median(errors) for key, errors in members.items()}
    within = [abs(error - centres[key]) for key, errors in members.items() for error in errors if len(errors) > 2]
    normal = 0.6745
    between = median(abs(centre) for centre in centres.values()) / normal
    return between, median(within) / normal if within else between


def _group(values: Sequence[float], wider: Group | None) -> Group:
    ordered, n = sorted(values), len(values)
    low = [quantile(ordered, share) for share in TAILS]
    high = [quantile(ordered, 1 - share) for share in TAILS]
    if wider is not None:
        low = [(n * own + BORROWED * other) / (n + BORROWED) for own, other in zip(low, wider.low, strict=True)]
        high = [(n * own + BORROWED * other) / (n + BORROWED) for own, other in zip(high, wider.high, strict=True)]
    return Group(n=n, low=tuple(low), high=tuple(high))


def quantile(ordered: Sequence[float], share: float) -> float:
    """Between the two nearest of ``ordered`` values, at place share · (n + 1) − 1: few values make a wide interval."""
    place = min(max(share * (len(ordered) + 1) - 1, 0.0), len(ordered) - 1.0)
    below = floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def with_interval(projection: Projection, table: ErrorTable) -> Projection:
    """The projection with the intervals that comparable runs give its step time and its peak memory."""
    low, high = table.interval(projection.job)
    return _having(projection, (projection.step_time * exp(low), projection.step_time * exp(high)))


def with_measured_interval(projection: Projection, spread: tuple[float, float], table: ErrorTable) -> Projection:
    """The projection with the ``spread`` of its measured seconds; what is simulated, or anchored on other sizes and
    groups, is as far off as comparable runs."""
    known, (low, high) = projection.provenance, table.interval(projection.job)
    doubtful = projection.step_time * (known.simulated + known.anchored)
    return _having(projection, (spread[0] + doubtful * (exp(low) - 1), spread[1] + doubtful * (exp(high) - 1)))


def _having(projection: Projection, step_time: tuple[float, float]) -> Projection:
    known = projection.uncertainty or Uncertainty(level=LEVEL, peak_device=projection.memory.interval)
    return replace(projection, uncertainty=replace(known, step_time=step_time))
