"""Jobs in the queue, whoever put them there: which of them are still in it, waiting for them, cancelling them.

Without Slurm submitit's jobs are processes of this machine; they are known by the folder of their run, whose name no
other process has.
"""

from __future__ import annotations

import importlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windtunnel.errors import Fault, FormatError

SLURM = "slurm"
ANSWER = 60.0
"""Seconds a command of the queue may take."""
PATIENCE = 15.0
"""Seconds in which processes that were asked to end must have ended."""
_PROCESS = re.compile(r"submitit\.(?:local\._local|core\._submit)\s.*(run-[0-9a-f]{12})")


def in_queue(cluster: str, jobs: Mapping[str, str]) -> set[str]:
    """Runs, of those given with the ids of their jobs, whose job is queued or running.

    Raises FormatError where the queue does not answer.
    """
    if not jobs:
        return set()
    if cluster != SLURM:
        return {run for run, _ in _processes() if run in jobs}
    command = ["squeue", "--noheader", f"--user={os.getuid()}", "--format=%i %t"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        said = " ".join(str(getattr(error, "stderr", None) or error).split())[-300:]
        remedy = "see what squeue says, then continue with --resume"
        raise FormatError(Fault("--slurm", "", f"the queue does not answer: {said}", remedy)) from None
    rows = [line.split() for line in done.stdout.splitlines()]
    there = {row[0] for row in rows if len(row) == 2 and row[1] != "CG"}
    return {run for run, job in jobs.items() if job in there}


def cancel(cluster: str, jobs: Mapping[str, str]) -> set[str]:
    """Cancel the jobs of runs, and answer those runs whose job is still there."""
    if not jobs:
        return set()
    if cluster != SLURM:
        return _end(jobs)
    try:
        subprocess.run(["scancel", *jobs.values()], capture_output=True, timeout=ANSWER, check=True)
    except (OSError, subprocess.SubprocessError):
        try:
            return in_queue(cluster, jobs)  # one that had ended is no reason to complain
        except FormatError:
            return set(jobs)
    return set()


def found_again(cluster: str, folder: Path, job: str, tasks: int) -> Any:
    """A job that another process queued, with ``done`` as submitit's jobs have it."""
    if cluster != SLURM:
        return _Left(folder.name)
    return importlib.import_module("submitit").SlurmJob(folder=folder, job_id=job, tasks=list(range(tasks)))


def id_in(folder: Path) -> str:
    """The id of the job that was submitted with this folder, which submitit's files there begin with; or nothing."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return ""
    found = (re.match(r"(\d+)_(?:submitted\.pkl|submission\.sh)", name) for name in names)
    return next((match[1] for match in found if match), "")


@dataclass(frozen=True, slots=True)
class _Left:
    run: str

    def done(self) -> bool:
        return self.run not in in_queue("local", {self.run: ""})


def _end(jobs: Mapping[str, str]) -> set[str]:
    """Ask until all have ended: what has only begun may not hear it the first time."""
    end = time.monotonic() + PATIENCE
    while found := [(run, pid) for run, pid in _processes() if run in jobs]:
        if time.monotonic() > end:
            return {run for run, _ in found}
        for _, pid in found:
            with suppress(OSError):
                os.kill(pid, signal.SIGTERM)
        time.sleep(0.2)
    return set()


def _processes() -> Iterator[tuple[str, int]]:
    """Runs and the processes that submitit has for them on this machine."""
    for pid, words in _commands():
        match = _PROCESS.search(words)
        if match:
            yield match[1], pid


def _commands() -> Iterator[tuple[int, str]]:
    """Every process here that has not ended, and its command."""
    if os.path.exists("/proc/self/cmdline"):
        for name in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError), open(f"/proc/{name}/cmdline", "rb") as file:
                yield int(name), file.read().replace(b"\0", b" ").decode(errors="replace")
        return
    listed = subprocess.run(["ps", "-A", "-ww", "-o", "pid=,args="], capture_output=True, text=True, check=False)
    for line in listed.stdout.splitlines():
        pid, _, words = line.strip().partition(" ")
        if pid.isdigit():
            yield int(pid), words
