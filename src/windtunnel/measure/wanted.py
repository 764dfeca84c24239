"""What a projection asks for: every op, unit, collective and optimizer step, with the seconds it stands for."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from windtunnel.cost.collectives.placement import Placement
from windtunnel.cost.profile import Key
from windtunnel.cost.profile_keys import collective_key, op_key, optimizer_key
from windtunnel.cost.source import CostSource, Evidence, OpCost
from windtunnel.job.job import Job
from windtunnel.ops.chunk import Unit
from windtunnel.ops.op import Collective, Op
from windtunnel.schedule.job_order import job_order
from windtunnel.step.step import step_costs


@dataclass(eq=False)
class Asked:
    """A cost source that passes every question on and remembers it. Its answers are those of the source behind."""

    behind: CostSource
    placements: dict[str, Placement]
    ops: dict[Key, Op] = field(default_factory=dict)
    units: dict[Unit, None] = field(default_factory=dict)
    collectives: dict[Key, float] = field(default_factory=dict)
    optimizers: dict[Key, float] = field(default_factory=dict)
    asked: dict[Key, int] = field(default_factory=lambda: defaultdict(int))

    def cost(self, op: Op) -> OpCost:
        wanted = op_key(op)
        if wanted is not None:
            self.ops[wanted] = op
            self.asked[wanted] += 1
        elif isinstance(op, Collective):
            self._network(op.collective, op.size, self.placements[op.group])
        return self.behind.cost(op)

    def again(self, op: Op) -> OpCost:
        return self.behind.again(op)

    def collective(self, kind: str, size: float, placement: Placement) -> float:
        self._network(kind, size, placement)
        return self.behind.collective(kind, size, placement)

    def transfer(self, size: float, placement: Placement) -> float:
        self._network("send_recv", size, Placement(2, 1 if placement.crosses else 2))
        return self.behind.transfer(size, placement)

    def within(self, job: Job, unit: Unit) -> Asked:  # noqa: ARG002
        self.units[unit] = None
        return self

    def optimizer(self, job: Job, parameters: float) -> float | None:
        self.optimizers[optimizer_key(job, parameters)] = parameters
        return self.behind.optimizer(job, parameters)

    def traffic_evidence(self, kind: str, size: float, placement: Placement) -> Evidence:
        return self.behind.traffic_evidence(kind, size, placement)

    def optimizer_evidence(self, job: Job, parameters: float) -> Evidence:
        return self.behind.optimizer_evidence(job, parameters)

    def _network(self, kind: str, size: float, placement: Placement) -> None:
        if placement.ranks > 1 and size > 0:
            self.collectives[collective_key(kind, placement.ranks, placement.inside, size)] = size


def asked(job: Job, source: CostSource, placements: dict[str, Placement]) -> Asked:
    """What pricing a step of ``job`` asks ``source``."""
    recorder = Asked(source, placements)
    step_costs(job, recorder, job_order(job))
    return recorder
