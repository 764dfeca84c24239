"""Where the seconds of a projection come from: op by op on a stage, and as shares of every part of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from windtunnel.cost.collectives.placement import Placement
from windtunnel.cost.source import CostSource, Evidence, OpCost
from windtunnel.job.job import Job
from windtunnel.ops.chunk import Unit, lower_unit, units
from windtunnel.ops.op import Collective, ExpertExchange, Op, Phase, RingExchange
from windtunnel.projection.result import Provenance
from windtunnel.schedule.action import Order
from windtunnel.schedule.job_order import job_order
from windtunnel.step.chunk import stripped
from windtunnel.step.data_parallel import DataParallel
from windtunnel.step.parts import NAMES, Parts
from windtunnel.step.step import StepCosts, stage_parts, transfer


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

    @property
    def again(self) -> bool:
        """Whether a backward re-executes it."""
        recompute = self.unit.recompute
        return self.op.phase == "F" and ("full" in recompute or bool(self.op.modules & recompute))


def priced_ops(job: Job, source: CostSource, order: Order, stage: int) -> tuple[Priced, ...]:
    """Every op a stage executes in a step, re-executed ones included, in model order."""
    found: list[Priced] = []
    for index in order.placement[stage]:
        found += chunk_ops(job, source, index, order.microbatches_per_chunk)
    return tuple(found)


def chunk_ops(job: Job, source: CostSource, index: int, microbatches: int = 1) -> list[Priced]:
    """Every op of a global chunk for some micro-batches."""
    base, found = stripped(job), []
    for unit, occurrences in units(job, job.plan.pipeline.layout[index]):
        inside = source.within(base, unit)
        for op in lower_unit(base, unit):
            if isinstance(op, RingExchange):
                continue
            once = Priced(unit, op, occurrences * microbatches, inside.cost(op))
            found.append(replace(once, times=2 * once.times) if once.again else once)
    return found


@dataclass(eq=False)
class _Noted:
    """A cost source that passes what lies between micro-batches on, and notes by part whose seconds answer it."""

    behind: CostSource
    seconds: dict[str, dict[Evidence, float]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(float)))

    def collective(self, kind: str, size: float, placement: Placement) -> float:
        found = self.behind.collective(kind, size, placement)
        self.seconds["dp"][self.behind.traffic_evidence(kind, size, placement)] += found
        return found

    def transfer(self, size: float, placement: Placement) -> float:
        found = self.behind.transfer(size, placement)
        self.seconds["pp"][self.behind.traffic_evidence("send_recv", size, placement)] += found
        return found

    def optimizer(self, job: Job, parameters: float) -> float | None:
        self.seconds["optimizer"][self.behind.optimizer_evidence(job, parameters)] += 1.0
        return self.behind.optimizer(job, parameters)


def by_part(job: Job, source: CostSource, costs: StepCosts, order: Order, stage: int) -> dict[str, Provenance]:
    """Of every part of a step as a stage sees it, the shares by where its seconds come from.

    What a stage waits for is known as well as what it does itself; stragglers, the host and offloading are simulated.
    """
    noted = _Noted(source)
    DataParallel(job, noted).addition(tuple(costs.chunks[index] for index in order.placement[stage]))  # type: ignore[arg-type]
    transfer(job, noted)  # type: ignore[arg-type]
    weights = noted.seconds
    weights["contention"] = weights["dp"]
    for priced in priced_ops(job, source, order, stage):
        weights[_part(priced.op)][priced.cost.provenance] += priced.seconds
        if priced.again:
            weights["recompute"][priced.cost.provenance] += priced.seconds
    found = {name: shares(weights[name]) for name in NAMES}
    return found | {"bubble": of_parts(found, stage_parts(costs, order, stage))}


def _part(op: Op) -> str:
    if isinstance(op, Collective):
        return op.group
    return "ep" if isinstance(op, ExpertExchange) else "compute"


def of_parts(evidence: Mapping[str, Provenance], parts: Parts) -> Provenance:
    """Shares of all seconds of ``parts``."""
    weights: dict[Evidence, float] = defaultdict(float)
    for name, share in evidence.items():
        for kind in KINDS:
            weights[kind] += getattr(share, kind) * getattr(parts, name)
    return shares(weights)


KINDS: tuple[Evidence, ...] = ("measured", "interpolated", "anchored", "simulated")


def shares(weights: Mapping[Evidence, float]) -> Provenance:
    """Seconds by where they come from, as shares of their sum; nothing at all is simulated."""
    total = sum(weights.values())
    if total <= 0:
        return Provenance()
    known = {kind: weights.get(kind, 0.0) / total for kind in KINDS[:-1]}
    return Provenance(**known, simulated=max(0.0, 1 - sum(known.values())))


def of_chunks(job: Job, source: CostSource) -> tuple[dict[Phase, Provenance], ...]:
    """Of every global chunk, the shares of its forward, backward and weight gradients."""
    found = []
    for index in range(len(job.plan.pipeline.layout)):
        weights: dict[Phase, dict[Evidence, float]] = defaultdict(lambda: defaultdict(float))
        for priced in chunk_ops(job, source, index):
            weights[priced.op.phase][priced.cost.provenance] += priced.seconds
        found.append({phase: shares(weights[phase]) for phase in PHASES})
    return tuple(found)


PHASES: tuple[Phase, ...] = ("F", "B", "W")


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
