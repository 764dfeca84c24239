"""One job under every schedule: step time, bubble, peak memory, or why a schedule cannot run it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from windtunnel.errors import WindtunnelError
from windtunnel.job.job import Job
from windtunnel.projection.project import project
from windtunnel.projection.result import Verdict
from windtunnel.schedule.registry import find, schedule_names

Vary = Callable[[Mapping[str, object]], Job]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleChoice:
    """A schedule with its chunks per stage. Where it does not apply, ``why`` says so and the figures are None."""

    name: str
    virtual_stages: int
    applicable: bool
    why: str | None = None
    step_time: float | None = None
    bubble_fraction: float | None = None
    peak_device: float | None = None
    verdict: Verdict | None = None


def compare_schedules(job: Job, vary: Vary) -> tuple[ScheduleChoice, ...]:
    """Every schedule at every number of chunks per stage that divides the layers; fastest first, inapplicable last."""
    choices = [
        _choice(vary, name, chunks) for name in schedule_names() if name != "custom" for chunks in _sweep(job, name)
    ]
    return tuple(sorted(choices, key=lambda choice: (not choice.applicable, choice.step_time or 0.0)))


def _sweep(job: Job, name: str) -> tuple[int, ...]:
    """Numbers of chunks per stage worth trying: the only one a schedule takes, or all that cut the stages evenly."""
    only = find(name).virtual_stages
    if only is not None:
        return (only,)
    stages, current = job.plan.parallel.pp, job.plan.pipeline.virtual_stages
    slots = {job.model.num_layers, job.model.num_layers + 1, job.model.num_layers + 2}
    even = [v for v in range(2, job.model.num_layers // stages + 1) if any(n % (v * stages) == 0 for n in slots)]
    return tuple(sorted({*even, *([current] if current > 1 else [])})) or (2,)


def _choice(vary: Vary, name: str, virtual_stages: int) -> ScheduleChoice:
    try:
        answer = project(vary({"plan.pipeline.schedule": name, "plan.pipeline.virtual_stages": virtual_stages}))
    except WindtunnelError as error:
        return ScheduleChoice(
            name=name,
            virtual_stages=virtual_stages,
            applicable=False,
            why=error.faults[0].rule if error.faults else str(error),
        )
    return ScheduleChoice(
        name=name,
        virtual_stages=virtual_stages,
        applicable=True,
        step_time=answer.step_time,
        bubble_fraction=answer.bubble_fraction,
        peak_device=answer.memory.peak.device,
        verdict=answer.memory.verdict,
    )
