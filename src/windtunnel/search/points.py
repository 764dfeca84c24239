"""The legal plans of a grid point: which variants and choices the rules let run, found in classes and remembered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

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
from windtunnel.projection.options import Columns, Rows, as_columns, as_rows
from windtunnel.search.balancer import Balancer
from windtunnel.search.inner import asked_recomputes, choices_of, distinct, kernels_of
from windtunnel.search.space import BALANCED, CHOICE_AXES, EVEN, LAYOUT, ORDER, Space, possible

Vary = Callable[[Mapping[str, object]], Job]
"""The job with other values at full paths, derived anew; raises WindtunnelError where that is illegal."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The legal plans of a grid point, its changes as a job file has them, and how many plans were looked at."""

    batch: Batch | None
    written: Changes
    enumerated: int

    def changes(self, row: int, column: int) -> Changes:
        assert self.batch is not None
        return {**self.written, **self.batch.rows[row].changes, **self.batch.columns.choices[column].changes}


@dataclass(slots=True, kw_only=True)
class _Known:
    """What rules said where they saw the same: of classes of variants and choices, then of all that are met there."""

    allowed: dict[Any, bool] = field(default_factory=dict)
    rows: dict[Any, Rows | None] = field(default_factory=dict)
    columns: dict[Any, Columns | None] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Points:
    """Makes the grid points of a space; remembers what is legal where, and the last point."""

    job: Job
    space: Space
    vary: Vary
    _inner: dict[str, tuple[Any, ...]] = field(init=False)
    _least: Changes = field(init=False)
    _strategies: list[Any] = field(init=False)
    _asked: tuple[Recompute, ...] = field(init=False)
    _known: dict[tuple[Any, ...], _Known] = field(init=False, default_factory=dict)
    _balancer: Balancer = field(init=False)
    _last: tuple[Changes, Point] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._inner = self.space.inner
        self._least = {path: value for path, value in LEAST.items() if path in self._inner}
        self._balancer = Balancer(job=self.job)
        self._asked = asked_recomputes(self._inner)
        self._strategies = [{SHARDING: name} for name in self._inner.get(SHARDING, ())] or [{}]

    def at(self, changes: Changes) -> Point:
        """The point with these values of the grid axes."""
        if self._last is None or self._last[0] != changes:
            self._last = (changes, self._made(changes))
        return self._last[1]

    def written(self, point: Changes) -> Changes | None:
        """The point with its layout as text; None where balancing changes nothing."""
        if point.get(LAYOUT) not in (EVEN, BALANCED):
            return point
        plain = {path: value for path, value in point.items() if path != LAYOUT}
        return plain if point[LAYOUT] == EVEN else self._balancer.with_layout(plain)

    def _made(self, point: Changes) -> Point:
        if not possible(self.job, point):
            return Point(batch=None, written=point, enumerated=1)
        twin = self._twin(point)
        written = self.written(point) if twin is None else {**twin.written, ORDER: point[ORDER]}
        base = None if written is None else self._base(written)
        if written is None or base is None:
            return Point(batch=None, written=point, enumerated=1)
        if twin is not None and twin.batch is not None:
            return Point(batch=twin.batch.beside(base), written=written, enumerated=twin.enumerated)
        return self._filled(written, base)

    def _twin(self, point: Changes) -> Point | None:
        """The last point where it has plans and differs in group order alone."""
        if self._last is None or self._last[1].batch is None or ORDER not in point:
            return None
        return self._last[1] if {**self._last[0], ORDER: point[ORDER]} == point else None

    def _filled(self, written: Changes, base: Job) -> Point:
        """The point with its legal variants and choices."""
        recomputes, kernels = distinct(self._asked, base) or (None,), kernels_of(base, self._inner)
        choices, known = choices_of(base, self._inner), self._seen(written, base)
        enumerated = len(recomputes) * len(kernels) * len(choices)
        if (recomputes, kernels) not in known.rows:
            kinds = [_kind(recompute) for recompute in recomputes]
            rows = []
            for k, kernel in enumerate(kernels):
                of = {kind: Variant(recomputes[kinds.index(kind)], kernel) for kind in set(kinds)}
                may = {kind: self._may(known, (kind, kernel), each, written, base) for kind, each in of.items()}
                rows += [(r, k) for r, kind in enumerate(kinds) if may[kind]]
            known.rows[recomputes, kernels] = as_rows(recomputes, kernels, rows) if rows else None
        if choices not in known.columns:
            legal = tuple(each for each in choices if self._may(known, _switches(each), each, written, base))
            known.columns[choices] = as_columns(legal) if legal else None
        variants, columns = known.rows[recomputes, kernels], known.columns[choices]
        batch = None if variants is None or columns is None else Batch(base, variants, columns)
        return Point(batch=batch, written=written, enumerated=enumerated)

    def _base(self, written: Changes) -> Job | None:
        """The job of a grid point with the variant that asks least, under the first strategy that may run it.

        Where the space names all that differs by strategy, whichever did so last is asked first.
        """
        for strategy in tuple(self._strategies):
            try:
                base = self.vary({**written, **self._least, **strategy})
            except WindtunnelError as error:
                if all(fault.path.startswith(GRID) for fault in error.faults):
                    return None
                continue
            if self._inner.keys() >= set(CHOICE_AXES):
                self._strategies.remove(strategy)
                self._strategies.insert(0, strategy)
            return base
        return None

    def _seen(self, written: Changes, base: Job) -> _Known:
        """What is known where rules look at the same: of the grid which degrees are more than one, and whatever else
        its axes set."""
        plan = base.plan
        p = plan.parallel
        seen = (
            base.software, base.cluster.accelerator, plan.precision, plan.pipeline.schedule,
            plan.pipeline.virtual_stages > 1, p.sequence_parallel,
            p.tp > 1, p.cp > 1, p.pp > 1, p.ep > 1, p.etp > 1, p.dp * p.cp > 1,
            *(f"{path}={value}" for path, value in written.items() if not path.startswith(GRID)),
        )  # fmt: skip
        return self._known.setdefault(seen, _Known())

    def _may(self, known: _Known, kind: Any, option: Variant | Choice, written: Changes, base: Job) -> bool:
        """Whether a variant or a choice may run here, asked once of its kind."""
        if kind not in known.allowed:
            strategy = {SHARDING: base.plan.sharding.strategy}
            known.allowed[kind] = self._legal({**written, **self._least, **strategy, **option.changes})
        return known.allowed[kind]

    def _legal(self, changes: Changes) -> bool:
        try:
            self.vary(changes)
        except WindtunnelError:
            return False
        return True


def _kind(recompute: Recompute | None) -> Any:
    """What rules look at of a recompute: every number of layers is alike, but for none."""
    return recompute and (recompute.policy, recompute.num_layers in (None, 0), recompute.layers, recompute.modules)


def _switches(choice: Choice) -> Any:
    """What rules look at of a choice: shard sizes divide their group by construction."""
    return choice.strategy, choice.grad_reduce, choice.param_gather, choice.optimizer_offload
