"""The oracle that runs: one command per plan, whose step time and peak memory are read from a JSON file it writes.

The command is a list of words, started without a shell. ``{job}`` in a word is the path of the plan's job file and
``{result}`` that of the JSON to write; ``{plan.parallel.tp}`` is the plan's value at any job path.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from dataclasses import replace
from pathlib import Path
from typing import Any

from windtunnel.catalog.dump import job_to_mapping
from windtunnel.catalog.jobs import write_job
from windtunnel.cli.execution import Ended, execute
from windtunnel.cli.reported import outcome_of, reported
from windtunnel.cli.under_way import UnderWay
from windtunnel.errors import Fault, FormatError, MissingError
from windtunnel.job.job import Job
from windtunnel.search.screen import Candidate
from windtunnel.search.trial import Outcome

_SLOT = re.compile(r"\{([a-z][a-z0-9_.]*)\}")
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
        self._runs = UnderWay()

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
        self._runs.end()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._runs.close()

    def _run(self, candidate: Candidate) -> Outcome:
        with _folder() as folder:
            result = Path(folder) / "result.json"
            words = written(self._words, candidate, Path(folder), result)
            return outcome_of_run(execute(words, self._timeout, self._runs.watched), result, candidate)


def written(words: Sequence[str], candidate: Candidate, folder: Path, result: Path) -> list[str]:
    """The command of a plan, whose job file is written to ``folder``. Raises WindtunnelError where it cannot be."""
    write_job(folder / "job.yaml", job_to_mapping(candidate.job))
    return filled(words, candidate.job, job_file=str(folder / "job.yaml"), result=str(result))


def outcome_of_run(ended: Ended, result: Path, candidate: Candidate) -> Outcome:
    """What a command that ended has to say of its plan."""
    if ended.code is None:
        outcome = Outcome(status="timeout" if ended.timed_out else "crashed", why=ended.said)
    else:
        outcome = reported(result, ended.code, ended.said, ended.seconds, candidate.job)
    return outcome_of(replace(outcome, why=_printable(outcome.why)), candidate, ended.seconds)


def _printable(text: str) -> str:
    """What a run said without what would steer a terminal or could not be written down."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _folder() -> tempfile.TemporaryDirectory[str]:
    """A folder of a run's own. Raises FormatError where there is no room: no fault of the plan."""
    try:
        return tempfile.TemporaryDirectory(prefix="windtunnel-run-", ignore_cleanup_errors=True)
    except OSError as error:
        remedy = "free space, then continue with --resume"
        raise FormatError(Fault("--run", "", f"no folder can be made for a run: {error}", remedy)) from None
