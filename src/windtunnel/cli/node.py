"""What a job of the queue does on each of its nodes: carry out the command, and write down how that ended.

How it ended is JSON in the folder of the run, so that a search that did not queue the job can read it, and reading it
runs nothing.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from windtunnel.cli.execution import Ended, execute
from windtunnel.cli.under_way import UnderWay
from windtunnel.measure.jobs import SLURM

LIMIT = 262_144
"""Bytes of such a file: the tail of what a run printed, and four numbers."""


def carry_out(words: Sequence[str], timeout: float, folder: str) -> None:
    """Run a command for ``timeout`` seconds at most and write down in ``folder`` how it ended.

    SIGTERM, which a queue sends to what it cancels, ends the command; it has not ended by itself then, and nothing is
    written.
    """
    environment = importlib.import_module("submitit").JobEnvironment()
    if environment.cluster != SLURM:
        _leave_terminal()
    runs = UnderWay()

    ear, mouth = os.pipe()

    def listen() -> None:
        os.read(ear, 1)
        runs.end()

    threading.Thread(target=listen, daemon=True).start()

    def stop(_signal: int, _frame: object) -> None:
        if not runs.over:
            runs.over = True
            os.write(mouth, b".")  # ending a run waits and takes locks, which a handler must not

    signal.signal(signal.SIGTERM, stop)
    try:
        ended = execute(words, timeout, runs.watched)
    finally:
        runs.close()
    if runs.over:
        sys.exit(128 + signal.SIGTERM)
    path = _path(Path(folder), environment.global_rank)
    path.with_suffix(".new").write_text(json.dumps(asdict(ended)))
    path.with_suffix(".new").replace(path)


def ended_of(folder: Path, tasks: int) -> Ended | None:
    """What the tasks of a job came to: the first that failed, or the first. None while one of them has not told."""
    found = []
    for rank in range(tasks):
        ended = _read(_path(folder, rank))
        if ended is None:
            return None
        found.append(ended)
    return next((ended for ended in found if ended.code != 0), found[0])


def _path(folder: Path, rank: int) -> Path:
    return folder / f"ended-{rank}.json"


def _read(path: Path) -> Ended | None:
    """None where there is no such file, or it is not what ``carry_out`` writes."""
    try:
        with path.open("rb") as file:
            told = json.loads(file.read(LIMIT))
        code, said, seconds, timed_out = (told[name] for name in ("code", "said", "seconds", "timed_out"))
    except (OSError, ValueError, RecursionError, TypeError, KeyError):
        return None
    sound = (code is None or type(code) is int) and isinstance(said, str) and isinstance(timed_out, bool)
    if not sound or type(seconds) is not float or not 0 <= seconds < math.inf:
        return None
    return Ended(code=code, said=said, seconds=seconds, timed_out=timed_out)


def _leave_terminal() -> None:
    """A job on the machine of the search was started with the terminal's signals blocked; out of its reach they need
    not be. On a node of a cluster the queue may know its processes by their group, which they must not leave."""
    with suppress(OSError):
        os.setsid()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGHUP})
