"""Runs tasks in child processes, writes every result the moment it is there, and survives what kernels do."""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from windtunnel.cost.profile import Entry, Key
from windtunnel.measure.statistics import entry, throttled
from windtunnel.measure.task import Task
from windtunnel.measure.worker import Effort, Outcome, serve

BLOCK = 6
"""Tasks of like value that are run in random order, so that a drift of the machine falls on all sizes alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Where and how to run: device, threads of a worker, workers that run the same kernel beside it, effort.

    ``layers`` says whose layers its tasks time; ``prepare`` is the ``module:function`` a worker calls first, with
    device and threads.
    """

    device: str = "cpu"
    threads: int | None = None
    co_runners: int = 0
    effort: Effort = field(default_factory=Effort)
    seed: int = 0
    prepare: str = "windtunnel.measure.torch.device:prepare"
    layers: str = "blocks"


@dataclass(frozen=True, slots=True)
class Result:
    """One task done: its entries, or the warning that stands in their place."""

    task: Task
    entries: tuple[Entry, ...]
    warning: str = ""


def run(
    tasks: Sequence[Task], bench: Bench, *, known: frozenset[Key] = frozenset(), budget: float | None = None
) -> Iterator[Result]:
    """Results of ``tasks``, most valuable first, those with ``known`` keys left out; stops when ``budget`` seconds are
    spent. A worker that dies or hangs costs its task alone."""
    due = [task for task in sorted(tasks, key=lambda task: -task.value) if not set(task.keys) <= known]
    begin = monotonic()
    with _Crew(bench) as crew:
        for task in _shuffled_in_blocks(due, random.Random(bench.seed)):
            if budget is not None and monotonic() - begin > budget:
                return
            yield crew.measure(task)


def _shuffled_in_blocks(tasks: list[Task], draw: random.Random) -> Iterator[Task]:
    for start in range(0, len(tasks), BLOCK):
        block = tasks[start : start + BLOCK]
        draw.shuffle(block)
        yield from block


@dataclass
class _Crew:
    """The worker that measures, its co-runners, and the reference that tells whether the clock fell."""

    bench: Bench
    reference: list[float] = field(default_factory=list)

    def __enter__(self) -> _Crew:
        self._worker = _Worker(self.bench)
        self._others = [_Worker(self.bench) for _ in range(self.bench.co_runners)]
        return self

    def __exit__(self, *error: object) -> None:
        for worker in (self._worker, *self._others):
            worker.end()

    def measure(self, task: Task) -> Result:
        timeout = self.bench.effort.timeout
        for other in self._others:
            other.send((task, True))
            other.answer(timeout)
        self._worker.send((task, False))
        outcome = self._worker.answer(timeout)
        for other in self._others:
            other.send("stop")
        if not isinstance(outcome, Outcome):
            self._worker = self._worker.replaced()
            return Result(task, (), f"{task.label}: {outcome}")
        if outcome.error:
            return Result(task, (), f"{task.label}: {outcome.error}")
        remarks = (*outcome.remarks, *self._clock_remarks())
        return Result(task, tuple(entry(key, series, remarks) for key, series in outcome.samples.items()))

    def _clock_remarks(self) -> tuple[str, ...]:
        """Times the reference kernel; on an accelerator a slower one means a fallen clock."""
        if self.bench.device == "cpu":
            return ()
        self._worker.send((REFERENCE, False))
        outcome = self._worker.answer(self.bench.effort.timeout)
        if isinstance(outcome, Outcome) and not outcome.error:
            self.reference += [min(series) for series in outcome.samples.values()]
        return ("throttled",) if throttled(self.reference) else ()


REFERENCE = Task(keys=(), kernel="windtunnel.measure.torch.kernels:reference", arguments=(), label="reference")


class _Worker:
    """One child process and the line to it."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        context = multiprocessing.get_context("spawn")
        self._link, theirs = context.Pipe()
        arguments = (theirs, bench.device, bench.threads, bench.effort, bench.prepare)
        self._process = context.Process(target=serve, args=arguments, daemon=True)
        self._process.start()
        theirs.close()

    def send(self, message: Any) -> None:
        with suppress(OSError):
            self._link.send(message)

    def answer(self, timeout: float) -> Any:
        """What the worker says, or the words for why it says nothing."""
        try:
            if self._link.poll(timeout):
                return self._link.recv()
        except (EOFError, OSError):
            self._process.join(5)
            code = self._process.exitcode
            return f"the process died with {'signal' if code and code < 0 else 'status'} {abs(code or 0)}"
        return f"no answer within {timeout:g} s"

    def replaced(self) -> _Worker:
        self.end()
        return _Worker(self._bench)

    def end(self) -> None:
        """Hang up, and kill what does not leave."""
        self._link.close()
        self._process.join(0.2)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
