"""The plug: where an op's seconds come from."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal, Protocol

from windtunnel.cost.collectives.placement import Placement
from windtunnel.ops.op import Op

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

    def collective(self, kind: str, size: float, placement: Placement) -> float:
        """Seconds of a collective of ``size`` bytes (full, gathered size) over a placed group."""
        ...

    def transfer(self, size: float, placement: Placement) -> float:
        """Seconds to send ``size`` bytes to a neighbour of a placed group."""
        ...
