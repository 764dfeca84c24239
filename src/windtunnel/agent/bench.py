"""What the tools work on: one job, its space, what the study has found, and how plans are written and judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from windtunnel.catalog.dump import job_to_mapping
from windtunnel.errors import FormatError, LegalityError, WindtunnelError
from windtunnel.job.job import Job
from windtunnel.projection.choices import Changes
from windtunnel.projection.layouts import balanced
from windtunnel.projection.project import project
from windtunnel.projection.result import Projection
from windtunnel.schedule.layout import layout_text
from windtunnel.search.mandate import outside, reads_files
from windtunnel.search.objective import Goal
from windtunnel.search.points import Vary
from windtunnel.search.space import BALANCED, EVEN, LAYOUT, Space
from windtunnel.search.trial import Trial
from windtunnel.store.journal import key_of


@dataclass(slots=True, kw_only=True)
class Bench:
    """One job to tune. ``load`` makes the job with other values and proposes repairs where it refuses; ``vary`` is the
    same without them. ``trials`` are all of the study's, in order; ``left`` is how many calls it may still make;
    ``stop`` says that time is up."""

    job: Job
    space: Space
    load: Vary
    vary: Vary
    goal: Goal
    oracle: str = "simulated"
    left: Callable[[], float] = lambda: inf
    stop: Callable[[], bool] = lambda: False
    certified: Callable[[], bool] = lambda: False
    """Whether the fastest plan of the space is known."""
    trials: list[Trial] = field(default_factory=list)
    scratch: str = ""
    _projected: dict[str, Projection] = field(default_factory=dict)
    _keys: dict[str, str | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.load, self.vary = _closed(self.load), _closed(self.vary)

    @property
    def best(self) -> Trial | None:
        """The best plan that ran, by the first objective."""
        ran = [trial for trial in self.trials if trial.values and trial.rank[0] < inf]
        return min(ran, key=lambda trial: trial.rank, default=None)

    @property
    def baseline(self) -> Trial | None:
        return next((trial for trial in self.trials if not trial.changes and trial.values), None)

    @property
    def simulated(self) -> bool:
        """Whether the oracle is the model itself."""
        return self.oracle.startswith("simulated")

    def written(self, changes: Mapping[str, Any]) -> Changes:
        """The changes as a job file has them: a balanced layout spelled out. Raises WindtunnelError."""
        if changes.get(LAYOUT) not in (EVEN, BALANCED):
            return dict(changes)
        plain = {path: value for path, value in changes.items() if path != LAYOUT}
        job = self.vary(plain)
        return plain if changes[LAYOUT] == EVEN else {**plain, LAYOUT: layout_text(balanced(job))}

    def job_of(self, changes: Mapping[str, Any]) -> Job:
        """The job with these changes, other hardware and software included. Raises WindtunnelError with repairs."""
        return self.load(self.written(changes))

    def project(self, changes: Mapping[str, Any]) -> Projection:
        """What the model says. Raises WindtunnelError."""
        key = repr(sorted(changes.items(), key=lambda item: item[0]))
        if key not in self._projected:
            while len(self._projected) >= KEPT:
                del self._projected[next(iter(self._projected))]
            self._projected[key] = project(self.job_of(changes))
        return self._projected[key]

    def key(self, changes: Mapping[str, Any]) -> str | None:
        """The same text for changes that make the same job; None for those that make none."""
        text = repr(sorted(changes.items(), key=lambda item: item[0]))
        if text not in self._keys:
            try:
                self._keys[text] = key_of(job_to_mapping(self.vary(self.written(changes))))
            except WindtunnelError:
                self._keys[text] = None
        return self._keys[text]

    def proposal(self, changes: Mapping[str, Any]) -> Changes:
        """Changes as they are proposed: words of axes written out where the plan without them is legal."""
        try:
            return self.written(changes)
        except WindtunnelError:
            return {path: value for path, value in changes.items() if path != LAYOUT}

    def refusal(self, changes: Mapping[str, Any]) -> WindtunnelError | None:
        """What is against a trial of these changes, with repairs; None where it may be tried."""
        faults = outside(changes, self.space)
        if faults:
            return LegalityError(faults)
        try:
            self.load(self.written(changes))
        except WindtunnelError as error:
            return error
        return None


def _closed(vary: Vary) -> Vary:
    """``vary`` that opens no file a change names."""

    def varied(changes: Mapping[str, object]) -> Job:
        faults = reads_files(changes)
        if faults:
            raise FormatError(faults)
        return vary(changes)

    return varied


KEPT = 256
"""Projections that are remembered."""
