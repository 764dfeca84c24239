"""Days, accelerator-hours and cost of a whole run, from its step time."""

from __future__ import annotations

from math import sqrt

from windtunnel.job.job import Job
from windtunnel.projection.result import RunAnswer

DAY = 86400.0


def run_answer(job: Job, step_time: float) -> RunAnswer | None:
    """Time and cost to train ``run.tokens`` at the goodput of failures, checkpoints and restarts; None if not asked."""
    if job.run.tokens is None:
        return None
    batch = job.plan.batch
    seconds = job.run.tokens / (batch.global_batch_size * batch.sequence_length) * step_time
    share = goodput(job)
    wall = seconds / share
    hours = wall / 3600 * job.cluster.num_accelerators
    price = job.cluster.price
    return RunAnswer(
        days=wall / DAY, goodput=share, accelerator_hours=hours, cost=None if price is None else hours * price
    )


def goodput(job: Job) -> float:
    """Share of wall time that advances training: after a failure half a checkpoint interval and the restart are lost.

    Failures arrive with n / mtbf_per_accelerator; without an interval the optimal one of Young's first-order formula
    is taken with the restart time as the cost of a checkpoint.
    """
    run = job.run
    if run.mtbf_per_accelerator is None:
        return 1.0
    between = run.mtbf_per_accelerator / job.cluster.num_accelerators
    restart = run.restart_time or 0.0
    interval = run.checkpoint_interval or sqrt(2 * between * restart)
    return between / (between + restart + interval / 2)
