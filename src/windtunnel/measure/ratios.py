"""Ratios a session leaves in its profile once layers and their ops are there."""

from __future__ import annotations

from dataclasses import replace

from windtunnel.catalog.profiles import read_profile, write_profile
from windtunnel.cost.profile import Entry, merge
from windtunnel.job.job import Job
from windtunnel.projection.in_model import layer_over_ops


def write_ratios(job: Job, path: str, co_runners: int) -> tuple[Entry, ...]:
    """The profile's layer-over-ops ratios by ``job``, written in place of older ones; none where no layer is whole."""
    known = read_profile(path)
    found = layer_over_ops(job, known, co_runners)
    if found:
        write_profile(path, merge(known, replace(known, entries=found)))
    return found
