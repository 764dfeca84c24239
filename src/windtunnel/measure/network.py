"""Collectives over the ranks at hand: those a job asks for, a grid that anchors its tiers, and compute beside them."""

from __future__ import annotations

import importlib
import multiprocessing
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass

from windtunnel.catalog.profiles import append_entries
from windtunnel.cost.anchor import CURVES, SLOWDOWN
from windtunnel.cost.profile import Entry, Key
from windtunnel.cost.profile_keys import calibration_key, collective_key
from windtunnel.cost.simulated import simulated_source
from windtunnel.job.job import Job
from windtunnel.measure.harness import Result
from windtunnel.measure.statistics import entry
from windtunnel.measure.task import Task
from windtunnel.measure.wanted import asked

KINDS = (*CURVES, "send_recv")
GRID = (2**16, 2**20, 2**24)
"""Bytes that tell latency from bandwidth."""
TIMEOUT = 300.0
ROUNDS = 7


@dataclass(frozen=True, slots=True)
class Question:
    """A collective to time, or with size 0 what traffic costs the compute beside it."""

    key: Key
    kind: str
    size: float


def questions(job: Job, ranks: int) -> tuple[Question, ...]:
    """The job's own collectives over ``ranks`` in one domain, the grid of every kind, and compute beside traffic."""
    source = simulated_source(job)
    wanted = asked(job, source, source.placements).collectives
    own = [Question(named, named.op.partition("/")[2], size) for named, size in wanted.items() if _fits(named, ranks)]
    grid = [Question(collective_key(kind, ranks, ranks, size), kind, size) for kind in KINDS for size in GRID]
    every = {question.key: question for question in (*grid, *own)}
    return (*every.values(), Question(calibration_key(SLOWDOWN), "beside", 0.0))


def _fits(named: Key, ranks: int) -> bool:
    sizes = dict(named.shape)
    return sizes["ranks"] == sizes["inside"] == ranks


def measure_network(job: Job, path: str, ranks: int, device: str) -> list[Result]:
    """Entries of all questions, appended to the profile at ``path``; what fails on the ranks is one warning."""
    asked_for = questions(job, ranks)
    samples = _gathered(asked_for, ranks, device)
    if isinstance(samples, str):
        task = Task(keys=(), kernel="", arguments=(), label=f"collectives over {ranks} ranks")
        return [Result(task, (), f"{task.label}: {samples}")]
    results = [_result(question, samples[question.key]) for question in asked_for if question.key in samples]
    append_entries(path, _entries(results))
    return results


def _result(question: Question, series: list[float]) -> Result:
    """Traffic that costs nothing, or seems to give time back, keeps the least figure an entry can hold."""
    positive = [max(value, 1e-9) for value in series]
    task = Task(keys=(question.key,), kernel="", arguments=(), label=f"{question.key.op} {question.size:g} B")
    return Result(task, (entry(question.key, positive),))


def _entries(results: Iterable[Result]) -> list[Entry]:
    return [found for result in results for found in result.entries]


def _gathered(asked_for: tuple[Question, ...], ranks: int, device: str) -> dict[Key, list[float]] | str:
    """Samples of rank 0, or the words for why there are none."""
    context = multiprocessing.get_context("spawn")
    rank = importlib.import_module("windtunnel.measure.torch.world").rank
    answers = context.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        arguments = [(index, ranks, f"{folder}/rendezvous", asked_for, ROUNDS, device) for index in range(ranks)]
        processes = [context.Process(target=rank, args=(*each, answers), daemon=True) for each in arguments]
        for process in processes:
            process.start()
        processes[0].join(TIMEOUT)
        found = answers.get() if not answers.empty() else f"no answer within {TIMEOUT:g} s"
        for process in processes:
            process.join(5)
            process.kill()
    return found
