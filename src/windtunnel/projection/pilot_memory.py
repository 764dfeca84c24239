"""Memory anchored on a measurement: what the peaks of pilots hold beyond what is counted, carried to a target."""

from __future__ import annotations

from collections.abc import Sequence

from windtunnel.cost.profile import Profile
from windtunnel.job.job import Job
from windtunnel.job.software import Software
from windtunnel.projection.memory import project_memory, verdict
from windtunnel.projection.pilots import pilot_key, pilots
from windtunnel.projection.result import AnchoredMemory, Memory, PilotMemory
from windtunnel.schedule.job_order import job_order

MARGIN = 0.05
"""Share of both residuals the upper bound adds: they are readings of one schedule."""


def measured_pilots(job: Job, profile: Profile, software: Software) -> tuple[PilotMemory, ...]:
    """Pilots of ``job`` whose peak a profile holds, fewest layers first; ``software`` is that of their modules."""
    found = []
    for pilot in pilots(job, software):
        allocated, reserved = (profile.find(pilot_key(pilot, what)) for what in ("bytes/allocated", "bytes/reserved"))
        if allocated is not None and reserved is not None:
            explained = project_memory(pilot).peak.allocated
            layers = pilot.model.num_layers
            found.append(
                PilotMemory(layers=layers, allocated=allocated.seconds, reserved=reserved.seconds, explained=explained)
            )
    return tuple(found)


def anchored_memory(target: Memory, layers: int, found: Sequence[PilotMemory]) -> AnchoredMemory:
    """Bytes of the worst stage, which holds ``layers``: as counted, both residuals, and what is outside the allocator.

    The residuals are those of the largest pilot. Were the excess one of layers, it would grow with those whose
    activations are alive: the upper bound allows for that, and for a margin of both residuals.
    """
    peak, largest = target.peak, found[-1]
    point = peak.allocated + largest.live_excess + largest.framework_overhead + peak.overhead
    alive = max(1.0, peak.in_flight) * layers
    grown = max(0.0, per_layer(found) * (alive - largest.layers))
    widened = MARGIN * (abs(largest.live_excess) + abs(largest.framework_overhead))
    upper = point + grown + widened
    return AnchoredMemory(
        stage=peak.stage,
        point=point,
        upper=upper,
        verdict=verdict(point, target.capacity, upper / point),
        live_excess=largest.live_excess,
        framework_overhead=largest.framework_overhead,
        pilots=tuple(found),
    )


def per_layer(found: Sequence[PilotMemory]) -> float:
    """Bytes by which the excess grows from layer to layer; 0 where one pilot cannot tell."""
    first, last = found[0], found[-1]
    if first.layers == last.layers:
        return 0.0
    return (last.live_excess - first.live_excess) / (last.layers - first.layers)


def anchored_on_pilots(job: Job, target: Memory, profile: Profile, software: Software) -> AnchoredMemory | None:
    """The memory of ``job`` as its pilots in a profile anchor it; None where it holds none."""
    found = measured_pilots(job, profile, software)
    if not found:
        return None
    held = job_order(job).placement[target.peak.stage]
    return anchored_memory(target, sum(len(job.plan.pipeline.layout[index].layers) for index in held), found)
