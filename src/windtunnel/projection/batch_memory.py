"""Peak memory of many plans of one grid point: kept bytes once per content and kernel, sums as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache, reduce
from typing import Any

import numpy as np

from windtunnel.elementwise import Number, maximum
from windtunnel.job.job import Job
from windtunnel.job.plan import Sharding, Strategy
from windtunnel.memory.device import overhead_terms, reserved_ratio
from windtunnel.memory.kept import KeptChunk
from windtunnel.memory.states import ByteRates, shards, states
from windtunnel.memory.structure import Holding, candidates_of, received_ahead
from windtunnel.ops.chunk import LocalParameters
from windtunnel.projection import compose
from windtunnel.projection.contents import Contents, Floats, Ints
from windtunnel.projection.memory import ROUNDING
from windtunnel.projection.options import Columns, Kept, Rows, State
from windtunnel.projection.shape import KEPT, Shape
from windtunnel.projection.stages import Stages, alive_of
from windtunnel.schedule.action import Order


@dataclass(frozen=True, slots=True, eq=False)
class BatchMemory:
    """What the peaks of a grid point's plans are made of."""

    job: Job
    shape: Shape
    found: Contents
    stages: Stages
    parameters: Sequence[LocalParameters]
    order: Order

    def peak_device(self, rows: Rows, columns: Columns) -> Floats:
        """Device bytes of the worst stage, ``[variant, choice]``; variants and choices that hold the same are one."""
        rates, peak = self.shape.rates(columns), np.empty((len(rows.held), len(columns.states)))
        for whole in (False, True):
            mine = np.flatnonzero(columns.whole == whole)
            if len(mine):
                holdings = self._holdings(columns.states[mine[0]][0])
                passing = self._passing(rows.held, holdings)
                some = [columns.states[i] for i in mine]
                high = self.shape.highest(columns)[mine]
                peak[:, mine] = self._worst(*passing, holdings, _some(rates, mine), some, high)
        return peak[rows.holds[:, None], columns.state]

    def most_that_fits(self, columns: Columns) -> Floats:
        """Peak device bytes up to which the verdict is ``fits``, by choice."""
        room = self.job.cluster.accelerator.hbm_capacity * (1 + ROUNDING)
        return np.asarray(room / self.shape.highest(columns))[columns.state]

    def _passing(self, held: Sequence[tuple[int, Kept]], holdings: Sequence[Holding]) -> tuple[Floats, Floats]:
        """The most that is alive beside the state, and what the loss leaves cached beyond it, ``[kind of stage, what is
        held]``."""
        alive = alive_of(self.stages, self.order)
        distinct = list(dict.fromkeys(kernel for _, kernel in held))
        tables = np.stack([self.shape.bytes(self.found, *kernel) for kernel in distinct])
        which = np.array([distinct.index(kernel) for _, kernel in held])[:, None]
        of = self.found.of[[recompute for recompute, _ in held]]
        own = []
        for local in range(alive.chunks.shape[1]):
            values = tables[which, :, of[:, alive.chunks[:, local]]]
            own.append(KeptChunk(**dict(zip(KEPT, np.moveaxis(values, 2, 0), strict=True))))
        counts: list[Number] = list(alive.counts.T)
        heads = np.array([holding.head for holding in holdings])
        moments = candidates_of(own, counts, self.order.virtual_stages, heads[alive.kind])
        freed = reduce(maximum, (chunk.loss_cached for chunk in own))
        loss = next(moment for moment in moments if moment.moment == "loss")
        most = _by_kind(reduce(maximum, (moment.alive for moment in moments)), alive.first)
        return most, np.maximum(_by_kind(loss.alive + freed, alive.first) - most, 0.0)

    def _holdings(self, strategy: Strategy) -> list[Holding]:
        """What each kind of stage holds whatever is in flight."""
        sharding = Sharding(strategy=strategy, shard_size=1, implementation=self.job.plan.sharding.implementation)
        each = [self.shape.holding(self.found, contents, sharding) for contents in self.stages.contents]
        ahead = [received_ahead(self.job, held) for held in self.stages.held]
        return [one._replace(resident=one.resident + more) for one, more in zip(each, ahead, strict=True)]

    def _worst(
        self,
        passing: Floats,
        cached: Floats,
        holdings: Sequence[Holding],
        rates: ByteRates,
        of: Sequence[State],
        high: Floats,
    ) -> Floats:
        """Device bytes of the worst kind of stage, ``[(recompute, kernel), state]``; ``high``: of the residuals, by
        state."""
        job, parallel = self.job, self.job.plan.parallel
        dense_shard, expert_shard = _shards(tuple(of), parallel.dp * parallel.cp, max(1, parallel.expert_dp))
        own: Any = np.array([(p.dense, p.expert) for p in self.parameters])[:, :, None, None]
        whatever: Any = np.array([(each.resident, each.reduction, each.largest_tensor) for each in holdings])
        resident, reduction, largest = whatever.T[:, :, None, None]
        held: Any = states(own[:, 0], own[:, 1], dense_shard, expert_shard, rates, largest)
        moving = np.maximum(np.maximum(passing[:, :, None], reduction), held.stepping)
        allocated = compose.allocated(held, resident, moving)
        outside = compose.overhead(allocated, *overhead_terms(job))
        room = compose.room(job.cluster.accelerator.hbm_capacity, high, outside)
        reserved = compose.reserved(allocated, cached[:, :, None], reserved_ratio(job), room)
        return np.asarray((reserved + outside).max(axis=0))


def _by_kind(rows: Floats, first: Ints) -> Floats:
    """The largest of the rows of each kind of stage, ``[kind, …]``."""
    return np.maximum.reduceat(rows, first, axis=1).T


def _some(rates: ByteRates, states_: Ints) -> ByteRates:
    of: dict[str, Any] = {item.name: getattr(rates, item.name)[states_] for item in fields(ByteRates)}
    return ByteRates(**of)


@lru_cache(maxsize=1024)
def _shards(of: tuple[State, ...], replicas: int, expert_replicas: int) -> Floats:
    """Ranks that share dense and expert state, ``[dense or expert, state]``."""
    each = [shards(replicas, expert_replicas, Sharding(strategy=s, shard_size=n)) for s, n, _ in of]
    return np.array(each, dtype=np.float64).T
