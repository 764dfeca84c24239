"""A measuring session on a node of a cluster, through submitit."""

from __future__ import annotations

import importlib
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from windtunnel.errors import Fault, MissingError
from windtunnel.job.job import Job
from windtunnel.measure.harness import Bench, Result
from windtunnel.measure.network import measure_network
from windtunnel.measure.session import session
from windtunnel.measure.task import Task

LOGS = "slurm-logs"
"""Folder of the queue's logs, beside the file that is written."""
MINUTES = 30
"""Wall time asked of the queue where no budget says otherwise."""


@dataclass(frozen=True, slots=True)
class Network:
    """The collectives of a job over so many ranks of the node, to be timed as well."""

    job: Job
    ranks: int


def submitted(
    tasks: Sequence[Task],
    path: str,
    bench: Bench,
    budget: float | None = None,
    network: Network | None = None,
    cluster: str | None = None,
) -> list[Result]:
    """Run the session as one job of the queue and wait for it. ``cluster``: ``local`` runs it here, in a child, and
    ``debug`` in this very process; without it the queue that is there.

    Raises MissingError without submitit.
    """
    executor = executor_of(os.path.join(os.path.dirname(os.path.abspath(path)), LOGS), cluster)
    minutes = MINUTES if budget is None else max(1, round(budget / 60) + 5)
    ranks = 1 if network is None else network.ranks
    gpus = {"gpus_per_node": ranks} if bench.device != "cpu" and cluster is None else {}
    executor.update_parameters(timeout_min=minutes, **gpus)
    job = executor.submit(_session, tuple(tasks), os.path.abspath(path), bench, budget, network)
    results: list[Result] = job.result()
    return results


def _session(
    tasks: tuple[Task, ...], path: str, bench: Bench, budget: float | None, network: Network | None
) -> list[Result]:
    results = list(session(tasks, path, bench, budget))
    return results if network is None else [*results, *measure_network(network.job, path, network.ranks, bench.device)]


def executor_of(folder: str, cluster: str | None = None) -> Any:
    """What submits to the queue, its logs in ``folder``; without Slurm on this machine, to processes here.

    Raises MissingError without submitit.
    """
    try:
        submitit = importlib.import_module("submitit")
    except ModuleNotFoundError:
        remedy = "pip install 'windtunnel[slurm]', or leave out --slurm"
        raise MissingError(Fault("--slurm", "", "needs submitit, which is not installed", remedy)) from None
    return submitit.AutoExecutor(folder=folder, cluster=cluster)


def submit(executor: Any, function: Callable[..., object], *arguments: object) -> Any:
    """Submit a call. A process that submitit starts here gets no signals of this terminal: it is cancelled, not
    interrupted with whoever waits for it."""
    if executor.cluster == "slurm":
        return executor.submit(function, *arguments)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        return executor.submit(function, *arguments)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
