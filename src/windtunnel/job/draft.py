"""A job before it is known to be legal: every value effective, some perhaps impossible."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from windtunnel.errors import Fault
from windtunnel.job.cluster import Cluster
from windtunnel.job.job import Origin, Run
from windtunnel.job.model import ModelSpec
from windtunnel.job.plan import Chunk
from windtunnel.job.software import Software


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What legality rules look at.

    ``plan`` maps every plan path of the job format without its ``plan.`` prefix (``"parallel.tp"``,
    ``"pipeline.layers_per_stage"``, ``"recompute.policy"`` …) to its effective value; None where a value is neither
    given nor derivable (``"parallel.dp"`` when tp · cp · pp does not divide the accelerators). ``given`` holds the
    full paths a user wrote or set. ``layout`` is None where no layout can be made, and ``layout_fault`` says why.
    """

    model: ModelSpec
    cluster: Cluster
    software: Software
    run: Run
    plan: Mapping[str, object]
    given: frozenset[str]
    layout: tuple[Chunk, ...] | None = None
    layout_fault: Fault | None = None
    schedule_fault: str | None = None
    """Why the schedule cannot run these stages and micro-batches, in its own words."""
    orders: tuple[tuple[str, ...], ...] | None = None
    origin: tuple[Origin, ...] = ()
    warnings: tuple[str, ...] = ()

    def count(self, path: str) -> int:
        """A whole number of the plan that always has a value."""
        value = self.plan[path]
        assert isinstance(value, int), path
        return value
