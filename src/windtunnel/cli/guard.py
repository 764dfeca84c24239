"""What ends the runs of a process that was killed: a small one beside it that knows the groups it started."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import suppress

_PROGRAM = """
import os, signal, sys, time
groups = set()
for line in sys.stdin:
    (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
for number in (signal.SIGTERM, signal.SIGKILL):
    for group in groups:
        try:
            os.killpg(group, number)
        except (ProcessLookupError, PermissionError):
            pass
    if groups and number == signal.SIGTERM:
        time.sleep(2.0)
"""
"""Reads groups that begin and end; its input ends when the process that writes them does, however that came about."""


class Guard:
    """Watches process groups, so that a killed search leaves no run behind on accelerators that its successor uses."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    def watch(self, group: int) -> None:
        self._tell(f"+{group}\n")

    def release(self, group: int) -> None:
        self._tell(f"-{group}\n")

    def close(self) -> None:
        """End the guard; groups it still watches are ended."""
        with self._lock:
            if self._process is None:
                return
            with suppress(OSError):
                self._process.communicate()
            self._process = None

    def _tell(self, line: str) -> None:
        with self._lock, suppress(OSError):
            if self._process is None:
                command = [sys.executable, "-S", "-E", "-c", _PROGRAM]
                self._process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True)
            assert self._process.stdin is not None
            self._process.stdin.write(line)
            self._process.stdin.flush()
