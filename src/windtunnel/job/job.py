"""A job: model, cluster, software and plan, plus where each value came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from windtunnel.job.cluster import Cluster
from windtunnel.job.constants import Constants
from windtunnel.job.model import ModelSpec
from windtunnel.job.plan import Plan
from windtunnel.job.software import Software

Level = Literal["file", "software", "neutral", "derived"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Questions about the whole run; they never change the step time."""

    tokens: float | None = None
    checkpoint_interval: float | None = None
    mtbf_per_accelerator: float | None = None
    restart_time: float | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value that was not given came from."""

    path: str
    value: object
    level: Level
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Everything a projection needs, effective and complete; ``constants`` are those of the simulated cost source."""

    model: ModelSpec
    cluster: Cluster
    software: Software
    plan: Plan
    constants: Constants
    run: Run = Run()
    origin: tuple[Origin, ...] = ()
    warnings: tuple[str, ...] = ()
