"""A search spread over processes: the same answer, also when one of them is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from windtunnel.cli.flags import NO_FLAGS, request
from windtunnel.cli.workers import Workers
from windtunnel.search.examine import Examiner
from windtunnel.search.exhaustive import Exhaustive, Progress
from windtunnel.search.space import default_space


@pytest.fixture
def examiner(job_file: str) -> Examiner:
    asked = request(job_file, NO_FLAGS)
    job = asked.load()
    space = default_space(job).pinned({"plan.parallel.tp": (1, 2), "plan.batch.micro_batch_size": (1, 2)})
    return Examiner(job=job, space=space, vary=asked.vary)


def searched(examiner: Examiner, spread: Any) -> Progress:
    progress = Progress()
    Exhaustive(examiner=examiner, spread=spread).run(progress, lambda: False, lambda: None)
    return progress


def test_processes_find_what_one_finds(examiner: Examiner) -> None:
    workers = Workers(examiner, 2)
    try:
        together = searched(examiner, workers)
    finally:
        workers.close()
    alone = searched(examiner, None)
    assert together.certified
    assert (together.best, together.enumerated, together.evaluated) == (alone.best, alone.enumerated, alone.evaluated)


def test_a_killed_process_costs_nothing_but_time(examiner: Examiner) -> None:
    workers = Workers(examiner, 2)

    def killing(task: Any, items: Any) -> Iterator[Any]:
        for number, answer in enumerate(workers(task, items)):
            if number == 30:
                for victim in list(workers._pool._processes):
                    os.kill(victim, signal.SIGKILL)
            yield answer

    try:
        progress = searched(examiner, killing)
    finally:
        workers.close()
    assert progress.certified
    assert progress.best == searched(examiner, None).best
