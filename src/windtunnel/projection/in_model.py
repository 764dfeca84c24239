"""What no op shows: layers over their ops, and whole pilots over their layers, as a profile has measured them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median

from windtunnel.cost.measured import Whole, measured_source
from windtunnel.cost.profile import Entry, Profile
from windtunnel.cost.profile_keys import BESIDE, LAYER_OVER_OPS, calibration_key
from windtunnel.job.job import Job
from windtunnel.job.software import Software
from windtunnel.ops.chunk import units
from windtunnel.projection.pilots import pilot_key, pilots, runs_alone
from windtunnel.projection.project import step_time
from windtunnel.step.chunk import stripped


def layer_over_ops(job: Job, profile: Profile, beside: float = 0.0) -> tuple[Entry, ...]:
    """The ratio of layers measured whole to the sum of their ops, forward and backward, as entries of a profile.

    The median over the job's kinds of layers, its least and its greatest. Ops nobody measured alone count as simulated:
    the ratio is applied to the same sum.
    """
    source = replace(measured_source(job, profile, beside=beside), split=False)
    layers = {unit for chunk in job.plan.pipeline.layout for unit, _ in units(job, chunk) if unit.layer is not None}
    wholes = [source.within(stripped(job), unit).whole for unit in layers]
    found = [whole for whole in wholes if whole.evidence == "measured"]
    return tuple(_entry(name, found) for name in LAYER_OVER_OPS if found)


def _entry(name: str, found: list[Whole]) -> Entry:
    values = [whole.forward if name.endswith("forward") else whole.grad_input for whole in found]
    return Entry(
        key=calibration_key(name), seconds=median(values), low=min(values), high=max(values), repeats=len(values)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotStep:
    """A pilot's step in seconds, measured and projected from the same profile; ``beside`` ranks ran at the time."""

    layers: int
    beside: int
    measured: float
    projected: float


def pilot_steps(job: Job, profile: Profile, software: Software) -> tuple[PilotStep, ...]:
    """The pilots of ``job`` that a profile has timed: what a model takes that is not in the sum of its parts."""
    levels = sorted({dict(entry.key.shape).get(BESIDE, 0.0) for entry in profile.entries})
    found = []
    for pilot in filter(runs_alone, pilots(job, software)):
        for beside in levels:
            entry = profile.find(pilot_key(pilot, "pilot", beside))
            if entry is not None:
                projected = step_time(pilot, measured_source(pilot, profile, beside=beside))
                count = pilot.model.num_layers
                found.append(PilotStep(layers=count, beside=int(beside), measured=entry.seconds, projected=projected))
    return tuple(found)
