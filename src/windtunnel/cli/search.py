"""What a search is asked for: the job, its space, the objective, and whose seconds are believed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from windtunnel.cli.axes import bounded, check_values
from windtunnel.cli.clock import Clock
from windtunnel.cli.evidence import Evidence, evidence_of
from windtunnel.cli.flags import Request
from windtunnel.cli.output import Output
from windtunnel.cli.tuning import Tuning
from windtunnel.job.job import Job
from windtunnel.search.exhaustive import Plan
from windtunnel.search.objective import Goal, goal
from windtunnel.search.slices import with_fewer_accelerators
from windtunnel.search.space import Space, default_space


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What is asked for; ``top``: how many plans to list."""

    asked: Request
    base: Job
    axes: Space
    aim: Goal
    clock: Clock
    top: int
    evidence: Evidence

    def job_of(self, plan: Plan) -> Job:
        return self.asked.vary(plan.changes)


def search_of(
    asked: Request,
    tuning: Tuning,
    vary: Sequence[str],
    space: str | None,
    target: float | None,
    clock: Clock,
    *,
    top: int,
    output: Output,
) -> Search:
    """The search of a command line; ``vary``, ``space`` and ``target`` (seconds) as its options of these names.

    Raises WindtunnelError for a job, axes, evidence or an objective that cannot be had.
    """
    base = asked.load()
    axes = bounded(default_space(base), vary, space)
    check_values(asked, base, axes)
    asked, evidence = evidence_of(asked, base, axes, tuning, output)
    base = asked.load()
    aim = goal(tuning.objectives, base, target)
    if "accelerators" in {objective.name for objective in aim.objectives}:
        axes = with_fewer_accelerators(axes, base)
    return Search(asked=asked, base=base, axes=axes, aim=aim, clock=clock, top=top, evidence=evidence)
