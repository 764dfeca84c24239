"""A projection on measured seconds: the network anchored, every op asked of the profile."""

from __future__ import annotations

from dataclasses import replace

from windtunnel.cost.anchor import anchored
from windtunnel.cost.measured import MeasuredSource, measured_source
from windtunnel.cost.profile import Profile
from windtunnel.cost.profile_keys import BESIDE
from windtunnel.job.job import Job
from windtunnel.projection.project import project, step_time
from windtunnel.projection.result import Projection


def project_measured(job: Job, profile: Profile) -> tuple[Projection, MeasuredSource]:
    """The projection of ``job`` from ``profile``, and the source that priced it.

    Ranks that share a host slow each other; a job has at most its other ranks beside it. Where units were measured
    with and without co-runners, a stage has as many beside it as the others are busy; that is read off the timeline of
    a first projection with all of them busy.
    """
    real = anchored(job, profile)
    levels = sorted({dict(entry.key.shape)[BESIDE] for entry in profile.entries if BESIDE in dict(entry.key.shape)})
    most = min(levels[-1], job.plan.parallel.world - 1) if levels else 0.0
    source = measured_source(real, profile, beside=most)
    projection = project(real, source)
    if len(levels) < 2 or job.plan.parallel.pp == 1:
        return projection, source
    source = measured_source(real, profile, beside=max(levels[0], most * _others_busy(projection)))
    return project(real, source), source


def _others_busy(projection: Projection) -> float:
    """Share of the pipeline's time that stages other than the busiest execute, on average."""
    timeline = projection.timeline
    busy = sorted(timeline.busy(rank) for rank in range(len(timeline.spans)))
    return sum(busy[:-1]) / (len(busy) - 1) / timeline.makespan


def spread(projection: Projection, source: MeasuredSource) -> tuple[float, float]:
    """Step seconds were every measurement at its 10th, and at its 90th percentile; interpolations at their error."""
    low, high = (step_time(projection.job, replace(source, lean=lean)) for lean in (-1.0, 1.0))
    return low, high
