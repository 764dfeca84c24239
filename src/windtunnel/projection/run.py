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
        days=wall / DAY,
        goodput=share,
        accelerator_hours=hours,
        cost=None if price is None else hours * price,
        checkpoint_interval=checkpoint_interval(job),
    )


def goodput(job: Job) -> float:
    """Share of wall time that advances training: after a failure half a checkpoint interval and the restart are lost.

    Failures arrive with n / mtbf_per_accelerator.
    """
    run = job.run
    if run.mtbf_per_accelerator is None:
        return 1.0
    between = run.mtbf_per_accelerator / job.cluster.num_accelerators
    return between / (between + (run.restart_time or 0.0) + (checkpoint_interval(job) or 0.0) / 2)


def checkpoint_interval(job: Job) -> float | None:
    """Seconds between checkpoints: the run's own, else Young's first-order optimum with the restart time as the cost of
    a checkpoint (J. W. Young, CACM 17(9), 1974; J. T. Daly, FGCS 22, 2006); None where neither is known."""
    run = job.run
    if run.checkpoint_interval is not None or run.mtbf_per_accelerator is None:
        return run.checkpoint_interval
    return sqrt(2 * run.mtbf_per_accelerator / job.cluster.num_accelerators * (run.restart_time or 0.0))
