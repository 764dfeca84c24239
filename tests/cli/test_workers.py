"""A search spread over processes: the same answer, also when one of them is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
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


POOL = """
import time
from concurrent.futures import ProcessPoolExecutor
from windtunnel.cli.workers import begin
pool = ProcessPoolExecutor(2, initializer=begin)
found = [pool.submit(time.sleep, 0.2) for _ in range(4)]
[future.result() for future in found]
print(*pool._processes, flush=True)
time.sleep(60)
"""


def test_a_killed_search_leaves_no_process_behind() -> None:
    with subprocess.Popen([sys.executable, "-c", POOL], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        workers = [int(word) for word in process.stdout.readline().split()]
        process.kill()
    assert len(workers) == 2
    end = time.monotonic() + 20
    while any(_runs(worker) for worker in workers) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(_runs(worker) for worker in workers)


def _runs(process: int) -> bool:
    """Whether a process is there; the dead whom no one has buried do not count."""
    found = subprocess.run(["ps", "-o", "stat=", "-p", str(process)], capture_output=True, text=True, check=False)
    return bool(found.stdout.strip()) and not found.stdout.startswith("Z")
