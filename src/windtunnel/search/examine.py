"""One grid point of a space at a time: its legal plans scored, and those that are wanted timed exactly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import numpy as np

from windtunnel.cost.simulated import simulated_source
from windtunnel.errors import WindtunnelError
from windtunnel.job.job import Job
from windtunnel.projection.batch import Batch
from windtunnel.projection.choices import (
    ACTIVATION_OFFLOAD,
    CP_COMM,
    EP_COMM,
    OPTIMIZER_OFFLOAD,
    P2P,
    PARAM_GATHER,
    RECOMPUTE,
    SHARDING,
    TP_COMM,
    Changes,
    Choice,
    Recompute,
    Variant,
)
from windtunnel.projection.contents import Floats
from windtunnel.projection.layouts import layer_seconds
from windtunnel.projection.options import Rows, as_columns
from windtunnel.schedule.layout import balanced_layout, layout_text
from windtunnel.search.space import (
    BALANCED,
    EVEN,
    LAYOUT,
    VIRTUAL_STAGES,
    Space,
    choices_of,
    kernels_of,
    possible,
    recomputes_of,
)

Vary = Callable[[Mapping[str, object]], Job]
"""The job with other values at full paths, derived anew; raises WindtunnelError where that is illegal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """What one grid point came to.

    ``rows`` are its variants with a choice that fits and the best bound of those; ``front`` what of them no other
    beats in estimated seconds and peak bytes; ``smallest`` the plan that needs least memory, with both figures.
    """

    point: Changes
    enumerated: int
    legal: int = 0
    evaluated: int = 0
    rows: tuple[tuple[int, float], ...] = ()
    front: tuple[tuple[float, float, Changes], ...] = ()
    smallest: tuple[float, float, Changes] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """The exact seconds and peak bytes of the fitting plans of one variant, fastest first."""

    plans: tuple[tuple[float, float, Changes], ...]
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Point:
    """The legal plans of a grid point, its changes as a job file has them, and how many plans were looked at."""

    batch: Batch | None
    written: Changes
    enumerated: int

    def changes(self, row: int, column: int) -> Changes:
        assert self.batch is not None
        return {**self.written, **self.batch.rows[row].changes, **self.batch.columns.choices[column].changes}


@dataclass(slots=True, kw_only=True)
class Examiner:
    """Scores and times the plans of a space; remembers which combinations are legal and the last grid point."""

    job: Job
    space: Space
    vary: Vary
    top: int = 10
    _inner: dict[str, tuple[Any, ...]] = field(init=False)
    _legal: dict[tuple[Any, ...], dict[Any, bool]] = field(init=False, default_factory=dict)
    _weights: dict[tuple[Any, ...], tuple[Any, ...]] = field(init=False, default_factory=dict)
    _layouts: dict[tuple[Any, ...], str] = field(init=False, default_factory=dict)
    _last: tuple[Changes, _Point] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._inner = self.space.inner

    def score(self, point: Changes) -> Scored:
        """Memory of every legal plan of a grid point; bounds and estimates of those that fit."""
        here = self._at(point)
        batch = here.batch
        if batch is None:
            return Scored(point=point, enumerated=here.enumerated)
        peak = batch.peak_device()
        fits = batch.fits(peak)
        leanest = divmod(int(np.argmin(peak)), peak.shape[1])
        found = Scored(
            point=point,
            enumerated=here.enumerated,
            legal=peak.size,
            smallest=(inf, float(peak[leanest]), here.changes(*leanest)),
        )
        rows = np.flatnonzero(fits.any(axis=1))
        if not len(rows):
            return found
        times, peak, fits = batch.times(rows), peak[rows], fits[rows]
        bounds = np.min(times.bound, axis=1, where=fits, initial=inf)
        front = [
            (float(times.estimate[row, column]), float(peak[row, column]), here.changes(int(rows[row]), column))
            for row, column in _front(times.estimate, peak, fits)
        ]
        return replace(
            found,
            evaluated=int(fits.sum()),
            rows=tuple(zip(rows.tolist(), bounds.tolist(), strict=True)),
            front=tuple(front),
        )

    def time(self, wanted: tuple[Changes, int]) -> Timed:
        """The fastest fitting plans of one variant of a grid point, as ``project`` times them."""
        point, row = wanted
        here = self._at(point)
        batch = here.batch
        assert batch is not None
        peak = batch.peak_device()[row]
        seconds = np.where(batch.fits(peak), batch.exact(row), inf)
        fastest = [int(c) for c in np.argsort(seconds, kind="stable")[: self.top] if np.isfinite(seconds[c])]
        plans = tuple((float(seconds[c]), float(peak[c]), here.changes(row, c)) for c in fastest)
        return Timed(plans=plans, count=int(np.isfinite(seconds).sum()))

    def _at(self, point: Changes) -> _Point:
        if self._last is None or self._last[0] != point:
            self._last = (point, self._made(point))
        return self._last[1]

    def _made(self, point: Changes) -> _Point:
        written = self.written(point) if possible(self.job, point) else None
        base = None if written is None else self._base(written)
        if written is None or base is None:
            return _Point(batch=None, written=point, enumerated=1)
        recomputes, kernels = recomputes_of(base, self._inner), kernels_of(base, self._inner)
        choices = choices_of(base, self._inner)
        count = len(recomputes) * len(kernels) * len(choices)
        allows = self._allowing(written, base)
        kinds = [_kind(recompute) for recompute in recomputes]
        rows = []
        for k, kernel in enumerate(kernels):
            may = {kind: allows((kind, kernel), Variant(recomputes[kinds.index(kind)], kernel)) for kind in set(kinds)}
            rows += [(r, k) for r, kind in enumerate(kinds) if may[kind]]
        legal = tuple(choice for choice in choices if allows(_switches(choice), choice))
        if not rows or not legal:
            return _Point(batch=None, written=written, enumerated=count)
        numbered = np.array(rows, dtype=np.intp)
        variants = Rows(recomputes=recomputes, kernels=kernels, recompute=numbered[:, 0], kernel=numbered[:, 1])
        return _Point(batch=Batch(base, variants, as_columns(legal)), written=written, enumerated=count)

    def _base(self, written: Changes) -> Job | None:
        """The job of a grid point with the variant that asks least, under the first strategy that may run it."""
        for strategy in self._inner.get(SHARDING, (None,)):
            try:
                return self.vary({**written, **self._least, **({SHARDING: strategy} if strategy else {})})
            except WindtunnelError as error:
                if all(fault.path.startswith(GRID) for fault in error.faults):
                    return None
        return None

    @property
    def _least(self) -> Changes:
        return {path: value for path, value in LEAST.items() if path in self._inner}

    def written(self, point: Changes) -> Changes | None:
        """The point with its layout as text; None where balancing changes nothing."""
        if point.get(LAYOUT) not in (EVEN, BALANCED):
            return point
        plain = {path: value for path, value in point.items() if path != LAYOUT}
        return plain if point[LAYOUT] == EVEN else self._balanced(plain)

    def _balanced(self, point: Changes) -> Changes | None:
        """The point with the layout whose heaviest chunk lasts least when nothing is recomputed; None if all chunks
        are alike."""
        plan, model = self.job.plan, self.job.model
        degrees = {path.rpartition(".")[2]: value for path, value in point.items() if path.startswith("plan.parallel.")}
        micro = point.get("plan.batch.micro_batch_size", plan.batch.micro_batch_size)
        shape = (*sorted((name, value) for name, value in degrees.items() if name not in ("pp", "dp")), micro)
        chunks = int(point.get("plan.parallel.pp", plan.parallel.pp)) * int(point.get(VIRTUAL_STAGES, 1))
        if shape not in self._weights:
            parallel = replace(plan.parallel, **_typed(degrees))
            batch = replace(plan.batch, micro_batch_size=micro)
            bare = (frozenset[str](),) * len(plan.recompute)
            shaped = replace(self.job, plan=replace(plan, parallel=parallel, batch=batch, recompute=bare))
            each, *ends = layer_seconds(shaped, simulated_source(shaped))
            self._weights[shape] = (tuple(each), *ends)
        weights = self._weights[shape]
        if (weights, chunks) not in self._layouts:
            layers, embedding, head = weights
            found = balanced_layout(
                layers, chunks, embedding_weight=embedding, head_weight=head, num_mtp_layers=model.num_mtp_layers
            )
            even = len({len(chunk.layers) for chunk in found}) == 1
            self._layouts[weights, chunks] = "" if even else layout_text(found)
        text = self._layouts[weights, chunks]
        return {**point, LAYOUT: text} if text else None

    def _allowing(self, written: Changes, base: Job) -> Callable[[Any, Variant | Choice], bool]:
        """Whether a variant or a choice may run here, known by what rules look at: the switches of a choice or the
        kind of a variant; of the grid which degrees are more than one, and whatever else its axes set."""
        plan = base.plan
        p = plan.parallel
        seen = (
            base.software, base.cluster.accelerator, plan.precision, plan.pipeline.schedule,
            plan.pipeline.virtual_stages > 1, p.sequence_parallel,
            p.tp > 1, p.cp > 1, p.pp > 1, p.ep > 1, p.etp > 1, p.dp * p.cp > 1,
            *(f"{path}={value}" for path, value in written.items() if not path.startswith(GRID)),
        )  # fmt: skip
        known = self._legal.setdefault(seen, {})
        strategy = {SHARDING: plan.sharding.strategy}

        def allows(key: Any, option: Variant | Choice) -> bool:
            if key not in known:
                known[key] = self._try({**written, **self._least, **strategy, **option.changes}) is not None
            return known[key]

        return allows

    def _try(self, changes: Changes) -> Job | None:
        try:
            return self.vary(changes)
        except WindtunnelError:
            return None


def _kind(recompute: Recompute | None) -> Any:
    """What rules look at of a recompute: every number of layers is alike, but for none."""
    return recompute and (recompute.policy, recompute.num_layers in (None, 0), recompute.layers, recompute.modules)


def _switches(choice: Choice) -> Any:
    """What rules look at of a choice: shard sizes divide their group by construction."""
    return choice.strategy, choice.grad_reduce, choice.param_gather, choice.optimizer_offload


GRID = ("plan.parallel.", "plan.pipeline.", "plan.batch.", "cluster.")
"""Faults of the grid itself, which no strategy mends."""
LEAST: Changes = {
    RECOMPUTE: {"policy": "none"},
    TP_COMM: False,
    CP_COMM: False,
    EP_COMM: False,
    P2P: False,
    ACTIVATION_OFFLOAD: 0.0,
    PARAM_GATHER: False,
    OPTIMIZER_OFFLOAD: "none",
}
"""Switches that no rule refuses."""


def _typed(degrees: Mapping[str, Any]) -> dict[str, Any]:
    """Degrees as ``Parallel`` takes them: a group order is a tuple."""
    return {name: tuple(v.split("-")) if isinstance(v, str) else v for name, v in degrees.items()}


def _front(seconds: Floats, peak: Floats, fits: Any) -> list[tuple[int, int]]:
    """Positions of fitting plans that no other one beats in both."""
    flat = np.flatnonzero(fits)
    order = flat[np.lexsort((peak.ravel()[flat], seconds.ravel()[flat]))]
    bytes_ = peak.ravel()[order]
    best_before = np.minimum.accumulate(np.concatenate([[np.inf], bytes_[:-1]]))
    return [divmod(int(index), seconds.shape[1]) for index in order[bytes_ < best_before]]
