"""The child process that runs kernels: what crashes, hangs or eats memory dies here and costs one entry."""

from __future__ import annotations

import contextlib
import importlib
from dataclasses import dataclass
from multiprocessing.connection import Connection
from time import monotonic, perf_counter, process_time
from typing import Any

from windtunnel.cost.profile import Key
from windtunnel.measure.statistics import precise, settled
from windtunnel.measure.task import Task

Samples = dict[Key, list[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How long a kernel is warmed up and sampled, in seconds and counts; ``memory`` bytes a worker may take."""

    warm_up: float = 1.0
    sampling: float = 3.0
    least: int = 5
    most: int = 200
    timeout: float = 60.0
    memory: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a worker answers: samples by key, remarks, or the words of an error."""

    samples: Samples
    remarks: tuple[str, ...] = ()
    error: str = ""


def serve(link: Connection, device: str, threads: int | None, effort: Effort, prepare: str) -> None:
    """Answer tasks until the parent hangs up; ``(task, True)`` is for a co-runner: run until told to stop."""
    _limit(effort.memory if device == "cpu" else None)
    named(prepare)(device, threads)
    while True:
        try:
            task, beside = link.recv()
        except (EOFError, KeyboardInterrupt):
            return
        if beside:
            _keep_busy(task, device, link)
        else:
            link.send(_measured(task, device, effort))


def _limit(memory: int | None) -> None:
    """On a CPU, allocations beyond ``memory`` bytes fail in this process instead of on the whole machine."""
    if memory is not None:
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))


def named(path: str) -> Any:
    """The function ``module:function``."""
    module, _, function = path.partition(":")
    return getattr(importlib.import_module(module), function)


def _kernel(task: Task, device: str) -> Any:
    return named(task.kernel)(device, *task.arguments)


def _measured(task: Task, device: str, effort: Effort) -> Outcome:
    try:
        kernel = _kernel(task, device)
        warm = _warm_up(kernel, effort)
        samples, busy = _sampled(kernel, effort)
    except Exception as error:  # a kernel may raise anything; the entry is lost, the run goes on
        words = " ".join(str(error).split())[:160]
        return Outcome({}, error=f"{type(error).__name__}: {words}")
    remarks = [] if warm else ["warm-up did not settle"]
    if device == "cpu" and busy < 0.9:
        remarks.append(f"had the core {100 * busy:.0f} % of the time")
    return Outcome(samples, tuple(remarks))


def _warm_up(kernel: Any, effort: Effort) -> bool:
    """Run until the time of a run settles; whether it did within the effort."""
    begin, times = monotonic(), list[float]()
    while monotonic() - begin < effort.warm_up or len(times) < 2:
        times.append(sum(kernel.run().values()))
        if settled(times):
            return True
    return False


def _sampled(kernel: Any, effort: Effort) -> tuple[Samples, float]:
    """Samples until the median is known, and the share of the time this process had a core."""
    samples: Samples = {}
    begin, wall, own = monotonic(), perf_counter(), process_time()
    for count in range(1, effort.most + 1):
        for key, seconds in kernel.run().items():
            samples.setdefault(key, []).append(seconds)
        enough = all(precise(series, effort.least) for series in samples.values())
        if enough or (monotonic() - begin > effort.sampling and count >= effort.least):
            break
    return samples, (process_time() - own) / max(perf_counter() - wall, 1e-9)


def _keep_busy(task: Task, device: str, link: Connection) -> None:
    """Run the kernel beside another worker until a message says stop."""
    with contextlib.suppress(Exception):
        kernel = _kernel(task, device)
        link.send("running")
        while not link.poll():
            kernel.run()
    link.recv()
