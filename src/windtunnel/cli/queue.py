"""The oracle that queues: one job of Slurm per plan, through submitit, which starts the command on the plan's nodes."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import Any

from windtunnel.cli.command import outcome_of_run, written
from windtunnel.cli.execution import Ended, execute
from windtunnel.errors import Fault, FormatError
from windtunnel.measure.slurm import executor_of
from windtunnel.search.screen import Candidate
from windtunnel.search.trial import Outcome

GLANCE = 0.5
"""Seconds a poll waits."""
SPARE = 5
"""Minutes that a job is given beyond the longest run."""


class Queued:
    """Runs on a cluster, ``workers`` jobs in the queue at a time.

    A job has a task on each node of its plan, and each task starts the command; ``{job}`` and ``{result}`` lie in
    ``folder``, which all nodes see. Time in the queue costs nothing and is no part of a run.
    """

    name = "slurm"

    def __init__(self, words: Sequence[str], *, folder: str, timeout: float, workers: int = 1) -> None:
        self.workers = workers
        self._words = words
        self._timeout = timeout
        self._folder = Path(folder).absolute()
        self._executor = executor_of(str(self._folder))
        self._jobs: dict[int, tuple[Any, Path, Candidate]] = {}

    def start(self, number: int, candidate: Candidate) -> None:
        """Submit a plan. Raises FormatError where the queue does not take it: no fault of the plan."""
        folder = self._folder / f"run-{uuid.uuid4().hex[:12]}"
        result = folder / "result.json"
        try:
            folder.mkdir(parents=True)
            words = written(self._words, candidate, folder, result)
            self._executor.update_parameters(**self._asks(candidate))
            job = self._executor.submit(execute, words, self._timeout)
        except (OSError, RuntimeError, ValueError) as error:
            remedy = "see what sbatch says of such a job, then continue with --resume"
            raise FormatError(Fault("--slurm", "", f"the queue does not take the job: {error}", remedy)) from None
        self._jobs[number] = job, result, candidate

    def poll(self, number: int, *, wait: bool) -> Outcome | None:
        job, result, candidate = self._jobs[number]
        if wait:
            time.sleep(GLANCE)
        if not job.done():
            return None
        del self._jobs[number]
        return outcome_of_run(_ended(job), result, candidate)

    def close(self) -> None:
        """Cancel what is queued or runs."""
        for job, _, _ in self._jobs.values():
            job.cancel()

    def _asks(self, candidate: Candidate) -> dict[str, Any]:
        """Nodes, accelerators and minutes of a plan; processes on this machine are given what there is."""
        asked: dict[str, Any] = {"timeout_min": ceil(self._timeout / 60) + SPARE}
        if self._executor.cluster != "slurm":
            return asked
        cluster = candidate.job.cluster
        each = min(cluster.accelerators_per_node, cluster.num_accelerators)
        nodes = ceil(cluster.num_accelerators / each)
        return asked | {"nodes": nodes, "tasks_per_node": 1, "gpus_per_node": each}


def _ended(job: Any) -> Ended:
    """What the tasks of a job came to: the first that failed, or the first. A job that the queue lost, or whose node
    died, crashed."""
    problem = job.exception()
    if problem is not None:
        said = " ".join(str(problem).split())[-500:]
        return Ended(code=None, said=f"the job did not end: {said}", seconds=0.0)
    found: list[Ended] = job.results()
    return next((ended for ended in found if ended.code != 0), found[0])
