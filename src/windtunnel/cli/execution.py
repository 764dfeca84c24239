"""One command carried out to its end, in a process group of its own; it may hang, crash, talk or leave children."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import IO

TAIL = 16_384
"""Bytes of a run's output that are kept, the last ones."""
GRACE = 5.0
"""Seconds between asking a run to end and ending it."""

Watched = Callable[[subprocess.Popen[bytes]], AbstractContextManager[None]]
"""Entered when a process has started, left when nothing of it is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a command ended: its exit code, the last it said, and wall seconds. Without a code it was ended, or never
    began, and ``said`` tells why."""

    code: int | None
    said: str
    seconds: float
    timed_out: bool = False


def execute(words: Sequence[str], timeout: float, watched: Watched = lambda _: nullcontext()) -> Ended:
    """Run a command for ``timeout`` seconds at most, then end its whole group."""
    start = time.perf_counter()
    try:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
        )
    except (OSError, ValueError) as error:
        said = f"the run cannot be started: {error}"
        return Ended(code=None, said=said, seconds=time.perf_counter() - start)
    with watched(process):
        kept = bytearray()
        assert process.stdout is not None
        reader = threading.Thread(target=_drain, args=(process.stdout, kept), daemon=True)
        reader.start()
        code: int | None = None
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            pass
        finally:
            seconds = time.perf_counter() - start
            end(process)  # and whatever it left behind
            reader.join(GRACE)
    if code is None:
        return Ended(code=None, said=f"ran longer than {timeout:g} s", seconds=seconds, timed_out=True)
    return Ended(code=code, said=bytes(kept).decode(errors="replace"), seconds=seconds)


def end(process: subprocess.Popen[bytes]) -> None:
    """Ask the whole process group to end, then make it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except (ProcessLookupError, PermissionError):
            return
        try:
            process.wait(GRACE if number == signal.SIGTERM else None)
        except subprocess.TimeoutExpired:
            continue
        if not _alive(process.pid):
            return


def _drain(stream: IO[bytes], kept: bytearray) -> None:
    """Read to the end, so that a talkative run never waits, and keep the tail."""
    while piece := stream.read1(65_536):  # type: ignore[attr-defined]
        kept += piece
        del kept[:-TAIL]


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True
