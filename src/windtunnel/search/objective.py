"""What "best" means: one number per objective, lower is better, from a job, its step time and its peak bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import TypeVar

from windtunnel.errors import Fault, FormatError
from windtunnel.job.job import Job
from windtunnel.projection.run import DAY, goodput, run_answer

T = TypeVar("T")


def _seconds_per_token(job: Job, step_time: float, _peak: float) -> float:
    return step_time / (job.plan.batch.global_batch_size * job.plan.batch.sequence_length)


def _cost_per_million(job: Job, step_time: float, _peak: float) -> float:
    """Price of a million tokens that advance training: accelerator-hours at the goodput of the run."""
    hours = _seconds_per_token(job, step_time, 0.0) * 1e6 / goodput(job) * job.cluster.num_accelerators / 3600
    return hours * (job.cluster.price or 0.0)


def _days(job: Job, step_time: float, _peak: float) -> float:
    answer = run_answer(job, step_time)
    return inf if answer is None or answer.days is None else answer.days


def _accelerators(job: Job, _step_time: float, _peak: float) -> float:
    return float(job.cluster.num_accelerators)


def _peak_bytes(_job: Job, _step_time: float, peak: float) -> float:
    return peak


@dataclass(frozen=True, slots=True)
class Objective:
    """``needs`` is the job path without which it has no value."""

    name: str
    unit: str
    of: Callable[[Job, float, float], float]
    needs: str | None = None


OBJECTIVES = {
    objective.name: objective
    for objective in (
        Objective("throughput", "s per token", _seconds_per_token),
        Objective("cost", "per million tokens", _cost_per_million, "cluster.price"),
        Objective("time_to_train", "days", _days, "run.tokens"),
        Objective("accelerators", "accelerators", _accelerators),
        Objective("memory", "bytes", _peak_bytes),
    )
}
"""Name to objective. Throughput is that of the whole cluster; memory serves fronts, and searches for small plans."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """One objective to minimize, up to two more to trade it against, and the slowest run that still counts.

    ``target`` is in seconds: of the whole run where the job has ``run.tokens``, else of a step.
    """

    objectives: tuple[Objective, ...]
    target: float | None = None

    def values(self, job: Job, step_time: float, peak: float) -> tuple[float, ...]:
        """One number per objective; infinite where the target is missed."""
        if self.target is not None and self._run_seconds(job, step_time) > self.target:
            return (inf,) * len(self.objectives)
        return tuple(objective.of(job, step_time, peak) for objective in self.objectives)

    @staticmethod
    def _run_seconds(job: Job, step_time: float) -> float:
        return step_time if job.run.tokens is None else _days(job, step_time, 0.0) * DAY


def goal(names: Sequence[str], job: Job, target: float | None = None) -> Goal:
    """The goal of these objectives. Raises FormatError for an unknown name, or where the job lacks what one needs."""
    faults = []
    if not 1 <= len(names) <= MOST or len(set(names)) != len(names):
        faults.append(Fault("--objective", ",".join(names), "takes one to three different objectives", _KNOWN))
    for name in names:
        if name not in OBJECTIVES:
            faults.append(Fault("--objective", name, "no such objective", _KNOWN))
        elif (needs := OBJECTIVES[name].needs) is not None and _lacks(job, needs):
            faults.append(Fault("--objective", name, f"needs {needs}", f"give it with --set {needs}=VALUE"))
    if faults:
        raise FormatError(faults)
    return Goal(objectives=tuple(OBJECTIVES[name] for name in names), target=target)


MOST = 3
"""Objectives a front is drawn over."""
_KNOWN = f"choose from {', '.join(OBJECTIVES)}; two or three, with commas between, give a front"


def _lacks(job: Job, path: str) -> bool:
    section, _, name = path.partition(".")
    return getattr(getattr(job, section), name) is None


def front(items: Iterable[T], values: Callable[[T], tuple[float, ...]]) -> list[T]:
    """The items that no other one equals or beats in every value, by their first; of equal ones the first."""
    kept: list[tuple[tuple[float, ...], T]] = []
    for mine, item in sorted(((values(item), item) for item in items), key=lambda pair: pair[0]):
        if (
            mine
            and mine[0] < inf
            and not any(all(a <= b for a, b in zip(other, mine, strict=True)) for other, _ in kept)
        ):
            kept.append((mine, item))
    return [item for _, item in kept]
