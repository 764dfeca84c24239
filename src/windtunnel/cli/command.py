"""The oracle that runs: one command per plan, whose step time and peak memory are read from a JSON file it writes.

The command is a list of words, started without a shell. ``{job}`` in a word is the path of the plan's job file and
``{result}`` that of the JSON to write; ``{plan.parallel.tp}`` is the plan's value at any job path.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from pathlib import Path
from typing import IO, Any

from windtunnel.catalog.dump import job_to_mapping
from windtunnel.catalog.jobs import write_job
from windtunnel.cli.guard import Guard
from windtunnel.cli.reported import outcome_of, reported
from windtunnel.errors import Fault, FormatError, MissingError
from windtunnel.job.job import Job
from windtunnel.search.screen import Candidate
from windtunnel.search.trial import Outcome

_SLOT = re.compile(r"\{([a-z][a-z0-9_.]*)\}")
TAIL = 16_384
"""Bytes of a run's output that are kept, the last ones."""
GRACE = 5.0
"""Seconds between asking a run to end and ending it."""
GLANCE = 0.1
"""Seconds a poll waits."""


def words_of(template: str, job: Job) -> list[str]:
    """The words of a command template. Raises FormatError for a slot the job has no value for, MissingError where the
    program is not there."""
    try:
        words = shlex.split(template)
    except ValueError as error:
        raise FormatError(
            Fault("--run", template, f"cannot be split into words: {error}", "close the quotes")
        ) from None
    if not words or not any("{result}" in word for word in words):
        rule = "the command must be told where to write its result"
        raise FormatError(Fault("--run", template, rule, "have {result} in it, and {job}"))
    filled(words, job, job_file="", result="")
    if shutil.which(words[0]) is None:
        raise MissingError(Fault("--run", words[0], "no such program", "give its path, or install it"))
    return words


def filled(words: Sequence[str], job: Job, *, job_file: str, result: str) -> list[str]:
    """The words with their slots filled; a value stays inside its word whatever it holds."""
    mapping = {"job": job_file, "result": result}
    whole = job_to_mapping(job)

    def value(match: re.Match[str]) -> str:
        name = match[1]
        found = mapping[name] if name in mapping else _at(whole, name)
        return found if isinstance(found, str) else json.dumps(found)

    return [_SLOT.sub(value, word) for word in words]


def _at(mapping: Mapping[str, Any], path: str) -> Any:
    found: Any = mapping
    for name in path.split("."):
        if not isinstance(found, Mapping) or name not in found:
            remedy = "use {job}, {result}, or a job path such as {plan.parallel.tp}"
            raise FormatError(Fault("--run", f"{{{path}}}", "the job has no such value", remedy))
        found = found[name]
    return found


class Running:
    """Runs on this machine, ``workers`` at a time. What a run does wrong is its outcome; ``close`` ends all of them."""

    name = "run"

    def __init__(self, words: Sequence[str], *, timeout: float, workers: int = 1) -> None:
        self.workers = workers
        self._words = words
        self._timeout = timeout
        self._pool = ThreadPoolExecutor(workers)
        self._answers: dict[int, Future[Outcome]] = {}
        self._alive: set[subprocess.Popen[bytes]] = set()
        self._closed = threading.Event()
        self._guard = Guard()

    def start(self, number: int, candidate: Candidate) -> None:
        self._answers[number] = self._pool.submit(self._run, candidate)

    def poll(self, number: int, *, wait: bool) -> Outcome | None:
        try:
            outcome = self._answers[number].result(GLANCE if wait else 0.0)
        except NotYet:
            return None
        del self._answers[number]
        return outcome

    def close(self) -> None:
        """End every run with all its processes."""
        self._closed.set()
        for process in list(self._alive):
            _end(process)
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._guard.close()

    def _run(self, candidate: Candidate) -> Outcome:
        start = time.perf_counter()
        with _folder() as folder:
            try:
                outcome = self._carried_out(candidate, Path(folder))
            except (OSError, ValueError) as error:
                outcome = Outcome(status="crashed", why=f"the run cannot be started: {error}")
        return outcome_of(outcome, candidate, time.perf_counter() - start)

    def _carried_out(self, candidate: Candidate, folder: Path) -> Outcome:
        result = folder / "result.json"
        write_job(folder / "job.yaml", job_to_mapping(candidate.job))
        words = filled(self._words, candidate.job, job_file=str(folder / "job.yaml"), result=str(result))
        start = time.perf_counter()
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
        )
        self._alive.add(process)
        self._guard.watch(process.pid)
        if self._closed.is_set():
            _end(process)
        kept = bytearray()
        assert process.stdout is not None
        reader = threading.Thread(target=_drain, args=(process.stdout, kept), daemon=True)
        reader.start()
        try:
            process.wait(self._timeout)
        except subprocess.TimeoutExpired:
            _end(process)
            return Outcome(status="timeout", why=f"ran longer than {self._timeout:g} s")
        finally:
            _end(process)  # whatever it left behind
            reader.join(GRACE)
            self._alive.discard(process)
            self._guard.release(process.pid)
        seconds = time.perf_counter() - start
        return reported(result, process.returncode, bytes(kept).decode(errors="replace"), seconds, candidate.job)


def _folder() -> tempfile.TemporaryDirectory[str]:
    """A folder of a run's own. Raises FormatError where there is no room: no fault of the plan."""
    try:
        return tempfile.TemporaryDirectory(prefix="windtunnel-run-", ignore_cleanup_errors=True)
    except OSError as error:
        remedy = "free space, then continue with --resume"
        raise FormatError(Fault("--run", "", f"no folder can be made for a run: {error}", remedy)) from None


def _drain(stream: IO[bytes], kept: bytearray) -> None:
    """Read to the end, so that a talkative run never waits, and keep the tail."""
    while piece := stream.read1(65_536):  # type: ignore[attr-defined]
        kept += piece
        del kept[:-TAIL]


def _end(process: subprocess.Popen[bytes]) -> None:
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
        if not _group_alive(process.pid):
            return


def _group_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True
