"""How much the step time follows each figure of the hardware: d log step_time / d log figure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from math import log

from windtunnel.job.cluster import Cluster, Peaks
from windtunnel.job.job import Job
from windtunnel.projection.project import step_time

STEP = 0.01
"""Relative change of a figure, up and down."""


StepTime = Callable[[Job], float]


def elasticity(job: Job, seconds: StepTime = step_time) -> tuple[tuple[str, float], ...]:
    """Central differences for each figure the cluster has; −1: twice the figure halves the step.

    ``seconds`` answers the step time of a job; measured ones stay as they are whatever the figure.
    """
    return tuple((path, _slope(job, change, seconds)) for path, change in _FIGURES.items() if _present(job, path))


def _slope(job: Job, change: Callable[[Cluster, float], Cluster], seconds: StepTime) -> float:
    up, down = (seconds(replace(job, cluster=change(job.cluster, 1 + sign * STEP))) for sign in (1, -1))
    return log(up / down) / log((1 + STEP) / (1 - STEP))


def _present(job: Job, path: str) -> bool:
    return path != "cluster.scale_out.bandwidth" or job.cluster.scale_out.kind != "none"


def _peaks(cluster: Cluster, factor: float) -> Cluster:
    peaks = cluster.accelerator.peaks
    scaled = {item.name: (getattr(peaks, item.name) or 0.0) * factor or None for item in fields(peaks)}
    return replace(cluster, accelerator=replace(cluster.accelerator, peaks=Peaks(**scaled)))


def _hbm(cluster: Cluster, factor: float) -> Cluster:
    accelerator = cluster.accelerator
    return replace(cluster, accelerator=replace(accelerator, hbm_bandwidth=accelerator.hbm_bandwidth * factor))


def _scale_up(cluster: Cluster, factor: float) -> Cluster:
    """The link and every measured curve of it."""
    fits = tuple(replace(fit, bandwidth=fit.bandwidth * factor) for fit in cluster.scale_up.fits)
    return replace(
        cluster, scale_up=replace(cluster.scale_up, bandwidth=cluster.scale_up.bandwidth * factor, fits=fits)
    )


def _scale_out(cluster: Cluster, factor: float) -> Cluster:
    return replace(cluster, scale_out=replace(cluster.scale_out, bandwidth=cluster.scale_out.bandwidth * factor))


def _pcie(cluster: Cluster, factor: float) -> Cluster:
    return replace(cluster, host=replace(cluster.host, pcie_bandwidth=cluster.host.pcie_bandwidth * factor))


_FIGURES: dict[str, Callable[[Cluster, float], Cluster]] = {
    "cluster.accelerator.peaks": _peaks,
    "cluster.accelerator.hbm_bandwidth": _hbm,
    "cluster.scale_up.bandwidth": _scale_up,
    "cluster.scale_out.bandwidth": _scale_out,
    "cluster.host.pcie_bandwidth": _pcie,
}
