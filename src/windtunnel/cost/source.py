"""The plug: where an op's seconds come from."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, Self

from windtunnel.cost.collectives.placement import Placement
from windtunnel.ops.op import Op

if TYPE_CHECKING:
    from windtunnel.job.job import Job
    from windtunnel.ops.chunk import Unit

Bound = Literal["compute", "memory", "latency", "network"]
Evidence = Literal["measured", "interpolated", "anchored", "simulated"]


@dataclass(frozen=True, slots=True)
class OpCost:
    """Seconds of one execution, what binds them, and where they come from."""

    seconds: float
    bound: Bound
    provenance: Evidence = "simulated"


class CostSource(Hashable, Protocol):
    """Answers what one op costs. Pure and hashable: equal sources price equal ops equally."""

    def cost(self, op: Op) -> OpCost:
        """Seconds of ``op`` on one rank, alone on the device."""
        ...

    def again(self, op: Op) -> OpCost:
        """Seconds of executing a forward ``op`` again in backward."""
        ...

    def collective(self, kind: str, size: float, placement: Placement) -> float:
        """Seconds of a collective of ``size`` bytes (full, gathered size) over a placed group."""
        ...

    def traffic_evidence(self, kind: str, size: float, placement: Placement) -> Evidence:
        """Where the seconds of ``collective`` come from; ``kind`` may be ``send_recv``."""
        ...

    def transfer(self, size: float, placement: Placement) -> float:
        """Seconds to send ``size`` bytes to a neighbour of a placed group."""
        ...

    def within(self, job: Job, unit: Unit) -> Self:
        """The source for the ops of one unit of a job, where a source knows more of a whole than of its ops."""
        ...

    def optimizer(self, job: Job, parameters: float) -> float | None:
        """Seconds of an optimizer step over local parameters; None leaves it to the formula."""
        ...

    def optimizer_evidence(self, job: Job, parameters: float) -> Evidence:
        """Where the seconds of ``optimizer``, or of the formula in its place, come from."""
        ...
