"""Where the seconds of a projection come from: op by op on the busiest stage, and as shares of it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from windtunnel.cost.source import CostSource, Evidence, OpCost
from windtunnel.job.job import Job
from windtunnel.ops.chunk import Unit, lower_unit, units
from windtunnel.ops.op import Op, RingExchange
from windtunnel.projection.result import Provenance
from windtunnel.schedule.action import Order
from windtunnel.schedule.job_order import job_order
from windtunnel.step.chunk import stripped
from windtunnel.step.step import StepCosts


@dataclass(frozen=True, slots=True)
class Priced:
    """An op of a stage, how often a step executes it (forward and recompute apart from backward), and its price."""

    unit: Unit
    op: Op
    times: int
    cost: OpCost

    @property
    def seconds(self) -> float:
        return self.times * self.cost.seconds


def priced_ops(job: Job, source: CostSource, order: Order, stage: int) -> tuple[Priced, ...]:
    """Every op a stage executes in a step, re-executed ones included, in model order."""
    base, found = stripped(job), []
    for index in order.placement[stage]:
        for unit, occurrences in units(job, job.plan.pipeline.layout[index]):
            inside = source.within(base, unit)
            for op in lower_unit(base, unit):
                if isinstance(op, RingExchange):
                    continue
                again = op.phase == "F" and ("full" in unit.recompute or bool(op.modules & unit.recompute))
                times = occurrences * order.microbatches_per_chunk * (2 if again else 1)
                found.append(Priced(unit, op, times, inside.cost(op)))
    return tuple(found)


def provenance(job: Job, source: CostSource, costs: StepCosts, order: Order, stage: int) -> Provenance:
    """Shares of a stage's own seconds, waiting apart: its ops, data-parallel traffic and optimizer."""
    seconds: dict[Evidence, float] = defaultdict(float)
    for priced in priced_ops(job, source, order, stage):
        seconds[priced.cost.provenance] += priced.seconds
    added = costs.additions[stage]
    seconds[source.evidence("traffic")] += added.exposed + added.contention
    seconds[source.evidence("optimizer")] += added.optimizer
    seconds["simulated"] += added.offload
    total = sum(seconds.values()) or 1.0
    return Provenance(
        measured=seconds["measured"] / total,
        interpolated=seconds["interpolated"] / total,
        anchored=seconds["anchored"] / total,
        simulated=1 - (seconds["measured"] + seconds["interpolated"] + seconds["anchored"]) / total,
    )


@dataclass(frozen=True, slots=True)
class OpComparison:
    """One op of the busiest stage, its seconds in a step simulated and measured, and the evidence of the latter."""

    unit: str
    op: str
    phase: str
    simulated: float
    measured: float
    evidence: Evidence


def compare_ops(
    job: Job, simulated: CostSource, real: Job, measured: CostSource, stage: int
) -> tuple[OpComparison, ...]:
    """Ops of a stage under two sources, those with the most measured seconds first."""
    order = job_order(job)
    pairs = zip(priced_ops(job, simulated, order, stage), priced_ops(real, measured, order, stage), strict=True)
    rows = [OpComparison(a.unit.kind, a.op.name, a.op.phase, a.seconds, b.seconds, b.cost.provenance) for a, b in pairs]
    return tuple(sorted(rows, key=lambda row: -row.measured))
