"""Search on several processes: each holds an examiner of its own and carries out tasks on items sent to it."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor
from itertools import islice
from multiprocessing import parent_process
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from windtunnel.search.examine import Examiner
    from windtunnel.search.exhaustive import Task

RUN = 1024
"""Grid points a process takes at a time, fewer where their kernels differ: those are priced by one process then."""
_MINE: list[Examiner] = []
"""The examiner of this process."""


def processors() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Workers:
    """A spread for ``Exhaustive``. If a process dies, what it had not answered is done here: nothing is lost."""

    def __init__(self, examiner: Examiner, processes: int) -> None:
        self._examiner = examiner
        self._processes = processes
        self._pool = ProcessPoolExecutor(processes, initializer=_begin, initargs=(examiner,))

    def __call__(self, task: Task, items: Iterable[Any]) -> Iterator[Any]:
        """Answers in the order of ``items``; a few per process are under way at a time."""
        waiting: list[tuple[Any, Any]] = []
        source = iter(items)
        while True:
            more = islice(source, 3 * self._processes - len(waiting))
            waiting += [(item, self._submit(task, item)) for item in more]
            if not waiting:
                return
            yield self._answer(task, *waiting.pop(0))

    def close(self) -> None:
        """End the processes; answers under way are dropped."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _submit(self, task: Task, item: Any) -> Any:
        try:
            return self._pool.submit(_answer, task, item)
        except (BrokenProcessPool, RuntimeError):
            return None

    def _answer(self, task: Task, item: Any, future: Any) -> Any:
        try:
            if future is not None:
                return future.result()
        except BrokenProcessPool:
            pass
        return getattr(self._examiner, task)(item)


def begin() -> None:
    """What every process of a pool does first: leave Ctrl-C and the end of the terminal to the process that started it,
    and end when that one ends, however it does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_follow, args=(parent.sentinel,), daemon=True).start()


def _follow(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


def _begin(examiner: Examiner) -> None:
    """A search makes millions of values and no cycles, so that looking for some would only cost time."""
    begin()
    gc.disable()
    _MINE[:] = [examiner]


def _answer(task: Task, item: Any) -> Any:
    return getattr(_MINE[0], task)(item)
