"""Many plans of one grid point at once: structure scalar and cached, sums and bounds as arrays through ``compose``.

A grid point is a job; its plans are the product of variants (how chunks execute) and choices (how state is sharded).
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from windtunnel.job.job import Job
from windtunnel.projection import compose
from windtunnel.projection.batch_memory import BatchMemory
from windtunnel.projection.batch_time import (
    BatchAdditions,
    ChunkSeconds,
    StageTerms,
    chunk_seconds,
    hop_seconds,
    stage_terms,
)
from windtunnel.projection.contents import Floats, Ints, contents
from windtunnel.projection.options import Columns, Rows
from windtunnel.projection.shape import shape_of
from windtunnel.projection.stages import stages_of
from windtunnel.schedule.action import Order
from windtunnel.schedule.job_order import job_order, steady_microbatches
from windtunnel.step.step import jitter
from windtunnel.step.timeline import ChunkDurations, makespan_only


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Times:
    """Of the variants asked for, ``[variant, choice]`` in seconds: a bound that never exceeds the step time, and an
    estimate of it."""

    bound: Floats
    estimate: Floats


class Batch:
    """The plans of one grid point. Raises LegalityError where its schedule does not apply."""

    def __init__(self, job: Job, rows: Rows, columns: Columns) -> None:
        self.job = job
        self.rows = rows
        self.columns = columns
        few, more = steady_microbatches(job)
        self._order, self._longer = job_order(job, few), job_order(job, more)
        self._shape = shape_of(job)
        self._found = contents(job, rows.recomputes)
        self._stages = stages_of(self._found, self._order)
        self._parameters = [self._shape.parameters(self._found, held) for held in self._stages.contents]
        self._memory = BatchMemory(job, self._shape, self._found, self._stages, self._parameters, self._order)
        self._hop = hop_seconds(job)
        self._peak: Floats | None = None

    def plan(self, row: int, column: int) -> Job:
        """The job of one plan."""
        return self.columns.choices[column].apply(self.rows[row].apply(self.job))

    def beside(self, job: Job) -> Batch:
        """The plans of a job that differs in group order alone: they hold the same."""
        twin = copy(self)
        twin.job, twin._shape, twin._hop = job, shape_of(job), hop_seconds(job)
        return twin

    def peak_device(self) -> Floats:
        """Device bytes of the worst stage as ``project`` gives them, ``[variant, choice]``."""
        if self._peak is None:
            self._peak = self._memory.peak_device(self.rows, self.columns)
        return self._peak

    def fits(self, peak: Floats) -> NDArray[np.bool_]:
        """Whether the verdict on these peaks, one column a choice, is ``fits``."""
        return np.asarray(peak <= self._memory.most_that_fits(self.columns))

    def times(self, rows: Ints) -> Times:
        """Bound and estimate of some variants under every choice."""
        seconds, own = self._priced(rows)
        terms = stage_terms(seconds, self._hop, self._order, self._stages)
        pipeline, offsets = self._pipeline(seconds, terms)
        bound, factor = self._bound(terms, own), jitter(self.job)
        estimate = compose.finish((pipeline + offsets)[:, :, None], own, factor).max(axis=0)
        return Times(bound=bound, estimate=np.maximum(bound, estimate))

    def exact(self, row: int) -> Floats:
        """The step time ``project`` gives for one variant under every choice: the order is executed once."""
        seconds, own = self._priced(np.array([row]))
        ends = self._by_kind(np.array(makespan_only(job_order(self.job), _durations(seconds, 0), self._hop)))
        return np.asarray(compose.finish(ends[:, None], own[:, 0], jitter(self.job)).max(axis=0))

    def _priced(self, rows: Ints) -> tuple[ChunkSeconds, Floats]:
        """Seconds of every chunk, and what each kind of stage adds."""
        some = self.rows.some(rows)
        seconds = chunk_seconds(self.job, some, self._found, self._shape, self._hop)
        added = BatchAdditions(self.job, some, seconds, self._found, self._shape, self._stages, self._parameters)
        return seconds, added.of(self.columns)

    def _bound(self, terms: StageTerms, own: Floats) -> Floats:
        """The worst stage's bound; stages of one kind add the same, so the latest of them decides."""
        m, factor = self.job.plan.num_microbatches, jitter(self.job)
        found = compose.bound(m, terms.fill.T[:, :, None], terms.each.T[:, :, None], own, factor).max(axis=0)
        if terms.drain is None:
            return np.asarray(found)
        first = own[next(kind for kind, held in enumerate(self._stages.held) if 0 in held)]
        latest = np.argmax(terms.fill + m * terms.each + terms.drain, axis=1)[:, None]
        fill, each, drain = (
            np.take_along_axis(values, latest, axis=1) for values in (terms.fill, terms.each, terms.drain)
        )
        return np.asarray(np.maximum(found, compose.bound(m, fill, each, drain + first, factor)))

    def _pipeline(self, seconds: ChunkSeconds, terms: StageTerms) -> tuple[Floats, Floats]:
        """Estimated seconds of the pipeline of every variant, and how much later each kind of stage ends, ``[kind,
        variant]``.

        What an order adds to the bound of its pipeline scales with the slowest stage and, once the order is full,
        grows evenly with the micro-batches: it is found by executing one variant of each shape with the fewest that
        fill the pipeline, and with a group more.
        """
        m = self.job.plan.num_microbatches
        lower, slowest = _lower(terms, m), terms.each.max(axis=1)
        offsets = np.empty((len(self._stages), len(lower)))
        for rows in _alike(seconds):
            some = rows[0]
            ends = self._ends(self._order, seconds, some)
            beyond = ends - _lower(terms, self._order.num_microbatches)[some]
            if self._longer is not self._order:
                further = self._longer.num_microbatches - self._order.num_microbatches
                growth = (self._ends(self._longer, seconds, some).max() - ends.max()) / further - slowest[some]
                beyond = beyond + max(0.0, float(growth)) * (m - self._order.num_microbatches)
            offsets[:, rows] = self._by_kind(beyond)[:, None] * (slowest[rows] / slowest[some])
        return lower, offsets

    def _by_kind(self, ends: Floats) -> Floats:
        """The latest of the stages of each kind."""
        found = np.full(len(self._stages), -np.inf)
        np.maximum.at(found, self._stages.kind, ends)
        return found

    def _ends(self, order: Order, seconds: ChunkSeconds, row: int) -> Floats:
        return np.array(makespan_only(order, _durations(seconds, row), self._hop))


SHAPES = 32
"""Steps in which the shares of F, B and W count as different shapes of a variant."""


def _alike(seconds: ChunkSeconds) -> list[Ints]:
    """Rows whose F, B and W have the same proportions."""
    phases = np.stack([each.sum(axis=1) for each in (seconds.forward, seconds.backward_input)])
    shares = np.rint(SHAPES * phases / (phases.sum(axis=0) + seconds.backward_weight.sum(axis=1)))
    _, shape = np.unique(shares, axis=1, return_inverse=True)
    return [np.flatnonzero(shape.ravel() == each) for each in range(int(shape.max()) + 1)]


def _lower(terms: StageTerms, num_microbatches: int) -> Floats:
    """Lower bound of the pipeline's end, of every variant."""
    drain = 0.0 if terms.drain is None else terms.drain
    return np.asarray((terms.fill + num_microbatches * terms.each + drain).max(axis=1))


def _durations(seconds: ChunkSeconds, row: int) -> list[ChunkDurations]:
    phases = (seconds.forward[row], seconds.backward_input[row], seconds.backward_weight[row])
    return [ChunkDurations(*each) for each in zip(*(phase.tolist() for phase in phases), strict=True)]
