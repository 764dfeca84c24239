"""Runs under way: all of them end together, also when the process that started them is killed."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from windtunnel.cli.execution import end
from windtunnel.cli.guard import Guard


class UnderWay:
    """``watched`` is entered for each run; ``end`` ends those under way and any that is still to begin."""

    def __init__(self) -> None:
        self.over = False
        """Whether runs are to end: no lock, so that a handler of signals may say it."""
        self._alive: set[subprocess.Popen[bytes]] = set()
        self._guard = Guard()

    @contextmanager
    def watched(self, process: subprocess.Popen[bytes]) -> Iterator[None]:
        """What ends with this process, whichever way that ends."""
        self._alive.add(process)
        self._guard.watch(process.pid)
        try:
            if self.over:
                end(process)
            yield
        finally:
            self._alive.discard(process)
            self._guard.release(process.pid)

    def end(self) -> None:
        """End every run with all its processes."""
        self.over = True
        for process in list(self._alive):
            end(process)

    def close(self) -> None:
        self._guard.close()
