"""The door before every oracle: rules first, then memory; what fails either costs no call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from windtunnel.errors import WindtunnelError
from windtunnel.job.job import Job
from windtunnel.memory.interval import residuals
from windtunnel.projection.choices import Changes
from windtunnel.projection.memory import ROUNDING, project_memory
from windtunnel.search.points import Vary
from windtunnel.search.trial import Outcome

Write = Callable[[Changes], Changes]
"""Changes as a job file takes them: an axis may have words of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A plan that may run: the changes as a job file has them, the job, and the bytes its worst rank should need."""

    written: Changes
    job: Job
    peak_device: float


@dataclass(slots=True, kw_only=True)
class Screen:
    """Legality and memory of one plan.

    A plan passes when its projected peak times a margin is within capacity. The margin is the high end of the
    published residuals; a run that exceeded its device, or measured more than the margin allowed, raises it.
    """

    vary: Vary
    write: Write
    margin: float = 0.0

    def look(self, changes: Changes) -> Candidate | Outcome:
        """The plan, legal or not: what it would run as, or the rule it breaks."""
        written = self.write(changes)
        try:
            job = self.vary(written)
            peak = project_memory(job).peak.device
        except WindtunnelError as error:
            return Outcome(status="illegal", why=str(error))
        return Candidate(written=written, job=job, peak_device=peak)

    def refusal(self, candidate: Candidate) -> Outcome | None:
        """Why a legal plan is not worth a call; None where it is."""
        job, peak = candidate.job, candidate.peak_device
        margin, capacity = max(residuals(job)[1], self.margin), job.cluster.accelerator.hbm_capacity
        if peak * margin <= capacity * (1 + ROUNDING):
            return None
        why = (
            f"memory: {peak / 2**30:.1f} GiB projected, {margin:.3g} times which must be within "
            f"{capacity / 2**30:.1f} GiB; recompute or split more"
        )
        return Outcome(status="infeasible", peak_device=peak, why=why)

    def learn(self, candidate: Candidate, outcome: Outcome) -> None:
        """Raise the margin by what a run has shown: the ratio of true to projected bytes."""
        ratio = 0.0
        if outcome.status == "oom":
            ratio = candidate.job.cluster.accelerator.hbm_capacity / candidate.peak_device * (1 + 2 * ROUNDING)
        elif outcome.status == "ok" and outcome.peak_device is not None:
            ratio = outcome.peak_device / candidate.peak_device
        if ratio > residuals(candidate.job)[1]:
            self.margin = max(self.margin, ratio)
