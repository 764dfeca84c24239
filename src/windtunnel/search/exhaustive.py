"""Every plan of a space: memory first, then a bound, then exact times for whatever the bound cannot rule out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Any, Literal

import numpy as np

from windtunnel.errors import WindtunnelError
from windtunnel.job.job import Job
from windtunnel.memory.interval import residuals
from windtunnel.search.space import SHARDING, Changes, Choice, Space, choices
from windtunnel.search.table import Floats, Table, exact, score

Vary = Callable[[Mapping[str, object]], Job]
"""The job with other values at full paths, derived anew; raises WindtunnelError where that is illegal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One plan of the space with its exact step time."""

    changes: Changes
    step_time: float
    peak_device: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    """One outer point that is legal, with the best bound among its choices that fit."""

    changes: Changes
    bound: float


@dataclass(slots=True, kw_only=True)
class Progress:
    """What a search has done so far; ``smallest`` is the plan that needs least memory, fitting or not."""

    enumerated: int = 0
    pruned: int = 0
    evaluated: int = 0
    exactly_timed: int = 0
    phase: Literal["bounds", "exact", "done"] = "bounds"
    best: Plan | None = None
    smallest: Plan | None = None
    found: list[Plan] = field(default_factory=list)
    front: list[tuple[float, float, Changes]] = field(default_factory=list)
    certified: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Exhaustive:
    """Branch and bound over the outer axes of ``space``; inner axes are arrays.

    ``stop`` is asked between outer points and ends the search early, without a certificate.
    """

    job: Job
    space: Space
    vary: Vary
    top: int = 10

    def run(self, progress: Progress, stop: Callable[[], bool], tick: Callable[[], None]) -> None:
        """Fill ``progress``; at the end no plan of the space that fits is faster than ``progress.best``."""
        legal = _Legality(self.vary)
        outers: list[Outer] = []
        for point in self.space.outer_points():
            if stop():
                return
            table = self._table(point, legal, progress)
            if table is not None:
                outers.append(self._bounded(point, table, progress))
            tick()
        progress.phase = "exact"
        for outer in sorted((o for o in outers if np.isfinite(o.bound)), key=lambda outer: outer.bound):
            if progress.best is not None and outer.bound >= self._threshold(progress):
                break
            if stop():
                return
            self._time(outer, legal, progress)
            tick()
        progress.phase = "done"
        progress.certified = True

    def _table(self, point: Changes, legal: _Legality, progress: Progress) -> Table | None:
        """Scores of the legal choices of an outer point; None where there is none."""
        base = _possible(self.job, point) and legal.base(point, self.space.inner.get(SHARDING, ()))
        if not base:
            progress.enumerated += 1
            progress.pruned += 1
            return None
        options = choices(base, self.space.inner)
        allowed = [option for option in options if legal.allows(point, base, option)]
        progress.enumerated += len(options)
        progress.pruned += len(options) - len(allowed)
        return score(base, allowed) if allowed else None

    def _bounded(self, point: Changes, table: Table, progress: Progress) -> Outer:
        """Keep the bound of what fits, and what of it no other choice beats in time and memory."""
        fits = self._fits(table)
        progress.evaluated += int(fits.sum())
        progress.pruned += int((~fits).sum())
        least = int(np.argmin(table.peak_device))
        needs = float(table.peak_device[least])
        if progress.smallest is None or needs < progress.smallest.peak_device:
            changes = {**point, **table.choices[least].changes()}
            progress.smallest = Plan(
                changes=changes, step_time=float(table.step_time_estimate[least]), peak_device=needs
            )
        for index in _front(table.step_time_estimate, table.peak_device, fits):
            entry = (float(table.step_time_estimate[index]), float(table.peak_device[index]))
            progress.front.append((*entry, {**point, **table.choices[index].changes()}))
        if len(progress.front) > FRONT_LIMIT:
            progress.front = _pareto(progress.front)
        return Outer(changes=point, bound=float(np.min(table.step_time_bound, where=fits, initial=np.inf)))

    def _time(self, outer: Outer, legal: _Legality, progress: Progress) -> None:
        base = legal.base(outer.changes, self.space.inner.get(SHARDING, ()))
        assert base is not None
        allowed = [option for option in choices(base, self.space.inner) if legal.allows(outer.changes, base, option)]
        table = score(base, allowed)
        seconds = np.where(self._fits(table), exact(table), np.inf)
        progress.exactly_timed += int(np.isfinite(seconds).sum())
        plans = (
            Plan(
                changes={**outer.changes, **table.choices[index].changes()},
                step_time=float(seconds[index]),
                peak_device=float(table.peak_device[index]),
            )
            for index in np.argsort(seconds, kind="stable")[: self.top]
            if np.isfinite(seconds[index])
        )
        progress.found = nsmallest(self.top, [*progress.found, *plans], key=lambda plan: plan.step_time)
        progress.best = progress.found[0] if progress.found else None

    def _threshold(self, progress: Progress) -> float:
        """The time that the next outer point has to beat: the last of the top plans, once there are enough."""
        return progress.found[-1].step_time if len(progress.found) == self.top else np.inf

    def _fits(self, table: Table) -> Any:
        """Choices whose verdict is ``fits``."""
        margin = residuals(self.job)[1]
        return table.peak_device * margin <= table.job.cluster.accelerator.hbm_capacity


FRONT_LIMIT = 4096
"""Points a Pareto front may hold before it is thinned."""


def _possible(job: Job, point: Changes) -> bool:
    """A quick look at the arithmetic of a point, before its job is built."""
    world = int(point.get("cluster.num_accelerators", job.cluster.num_accelerators))
    tp = int(point.get("plan.parallel.tp", job.plan.parallel.tp))
    cp = int(point.get("plan.parallel.cp", job.plan.parallel.cp))
    pp = int(point.get("plan.parallel.pp", job.plan.parallel.pp))
    virtual = int(point.get("plan.pipeline.virtual_stages", 1))
    if world % (tp * cp * pp) or (virtual > 1 and pp == 1) or virtual * pp > job.model.num_layers + 2:
        return False
    dp = world // (tp * cp * pp)
    micro = int(point.get("plan.batch.micro_batch_size", job.plan.batch.micro_batch_size))
    experts = int(point.get("plan.parallel.ep", 1)) * int(point.get("plan.parallel.etp", 1))
    batch = int(point.get("plan.batch.global_batch_size", job.plan.batch.global_batch_size))
    return batch % (micro * dp) == 0 and (tp * cp * dp) % experts == 0


class _Legality:
    """Legal jobs by outer point, and legal inner choices by what their rules look at."""

    def __init__(self, vary: Vary) -> None:
        self._vary = vary
        self._known: dict[tuple[Any, ...], bool] = {}

    def base(self, point: Changes, strategies: Sequence[str]) -> Job | None:
        """The job of an outer point under the first strategy that may run it."""
        for strategy in strategies or (None,):
            job = self._try({**point, **({SHARDING: strategy} if strategy else {})})
            if job is not None:
                return job
        return None

    def allows(self, point: Changes, base: Job, option: Choice) -> bool:
        """Shard sizes divide their group by construction; the other rules look at switches and at which degrees are
        more than one."""
        p = base.plan.parallel
        key = (
            option.strategy, option.grad_reduce, option.param_gather, option.optimizer_offload,
            p.tp > 1, p.cp > 1, p.pp > 1, p.ep > 1, p.etp > 1, p.dp * p.cp > 1, base.plan.pipeline.schedule,
        )  # fmt: skip
        if key not in self._known:
            changes = option.changes()
            self._known[key] = self._try({**point, **changes}) is not None
        return self._known[key]

    def _try(self, changes: Changes) -> Job | None:
        try:
            return self._vary(changes)
        except WindtunnelError:
            return None


def _front(seconds: Floats, peak: Floats, fits: Any) -> list[int]:
    """Positions that no other fitting one beats in both."""
    order = [int(index) for index in np.lexsort((peak, seconds)) if fits[index]]
    kept: list[int] = []
    for index in order:
        if not kept or peak[index] < peak[kept[-1]]:
            kept.append(index)
    return kept


def _pareto(points: Iterable[tuple[float, float, Changes]]) -> list[tuple[float, float, Changes]]:
    """Points no other beats in both numbers, fastest first."""
    kept: list[tuple[float, float, Changes]] = []
    for point in sorted(points, key=lambda p: (p[0], p[1])):
        if not kept or point[1] < kept[-1][1]:
            kept.append(point)
    return kept


def pareto(progress: Progress) -> list[tuple[float, float, Changes]]:
    """The front of step time (as estimated) and peak memory over every plan that fits, fastest first."""
    return _pareto(progress.front)
