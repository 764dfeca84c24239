"""The oracle that queues: one job of Slurm per plan, through submitit, which starts the command on the plan's nodes."""

from __future__ import annotations

import socket
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

from windtunnel.cli.command import outcome_of_run, written
from windtunnel.cli.execution import Ended
from windtunnel.cli.node import carry_out, ended_of
from windtunnel.errors import Fault, FormatError
from windtunnel.measure.jobs import SLURM, cancel, found_again, id_in, in_queue
from windtunnel.measure.slurm import executor_of, submit
from windtunnel.search.screen import Candidate
from windtunnel.search.trial import Outcome
from windtunnel.store.tickets import Sign, Ticket, Tickets, lives

GLANCE = 0.5
"""Seconds a poll waits."""
SPARE = 5
"""Minutes that a job is given beyond the longest run."""
LATE = 15.0
"""Seconds after the end of a job in which what its nodes wrote may still come to be seen here."""


@dataclass(slots=True)
class _Awaited:
    """A job under way; ``job`` is None until the queue has taken it, ``gone`` the moment it was first seen to be."""

    ticket: Ticket
    candidate: Candidate | None = None
    job: Any = None
    gone: float | None = None


class Queued:
    """Runs on a cluster, ``workers`` jobs in the queue at a time.

    A job has a task on each node of its plan, and each task starts the command; ``{job}`` and ``{result}`` lie in
    ``folder``, which all nodes see. Time in the queue costs nothing and is no part of a run. With ``take_over`` jobs
    are kept in a study: a search that goes on with it knows of those that a killed one left.
    """

    name = SLURM

    def __init__(
        self, words: Sequence[str], *, folder: str, timeout: float, workers: int = 1, quiet: bool = False
    ) -> None:
        self.workers = workers
        self._words = words
        self._timeout = timeout
        self._folder = Path(folder).absolute()
        self._cluster: str = executor_of(str(self._folder)).cluster
        self._tickets: Tickets | None = None
        self._quiet = quiet
        self._search = f"search-{uuid.uuid4().hex[:12]}"
        self._sign: Sign | None = None
        self._jobs: dict[int, _Awaited] = {}
        self._left: dict[str, _Awaited] = {}

    def take_over(self, tickets: Tickets) -> None:
        """Keep jobs in ``tickets``, and look for those that searches of this study left when they were killed: those
        of this command are waited for when their plan is asked for, all others are cancelled.

        Raises FormatError where the queue does not answer, or its folder cannot be written.
        """
        self._tickets = tickets
        waiting = tickets.waiting()
        dead = {name for name in {ticket.search for ticket in waiting} if not lives(self._folder, name)}
        self._sign = self._signed()
        left = [self._with_id(ticket) for ticket in waiting if ticket.search in dead]
        mine = [ticket for ticket in left if self._is_near(ticket) or self._has_ended(ticket)]
        for host in sorted({ticket.host for ticket in left if ticket not in mine}):
            self._tell(f"{host} may still run {{jobs}} of an earlier search: end them there",
                       [ticket for ticket in left if ticket not in mine and ticket.host == host])  # fmt: skip
        self._sort([replace(ticket, search=self._search) for ticket in mine if tickets.claim(ticket, self._search)])

    def _sort(self, mine: Sequence[Ticket]) -> None:
        """Wait for jobs that were left and are of use, cancel the others that are still there."""
        assert self._tickets is not None
        there = in_queue(self._cluster, {ticket.run: ticket.job for ticket in mine if self._is_near(ticket)})
        unwanted: list[Ticket] = []
        for ticket in sorted(mine, key=self._has_ended, reverse=True):
            ended, answered = self._has_ended(ticket), self._tickets.answered(ticket)
            wanted = ticket.oracle == self._tickets.oracle and not answered and ticket.key not in self._left
            if wanted and (ended or ticket.run in there):
                job = found_again(self._cluster, self._folder / ticket.run, ticket.job, ticket.tasks)
                self._left[ticket.key] = _Awaited(ticket, job=job)
            elif ticket.run in there and not ended:
                unwanted.append(ticket)
            elif not answered and not ended:
                self._forget(ticket)  # it ended without a word: as if it had never been queued
        self._tell("took over {jobs} of an earlier search", [awaited.ticket for awaited in self._left.values()])
        self._cancel(unwanted, "cancelled {jobs} of an earlier search, for another command or a plan that is known")

    def start(self, number: int, candidate: Candidate) -> None:
        """Submit a plan, unless a job that was left has it. Raises FormatError where the queue does not take it: no
        fault of the plan."""
        key = "" if self._tickets is None else self._tickets.key(candidate.job)
        if key in self._left:
            awaited = self._jobs[number] = self._left.pop(key)
            awaited.candidate = candidate
            return
        asked, run = self._asks(candidate), f"run-{uuid.uuid4().hex[:12]}"
        ticket = Ticket(
            run=run, oracle="" if self._tickets is None else self._tickets.oracle, key=key, search=self._search,
            cluster=self._cluster, host=socket.gethostname(), job="", tasks=asked.get("nodes", 1),
        )  # fmt: skip
        self._keep(ticket)  # before there is a job: a kill between the two must not lose it
        awaited = self._jobs[number] = _Awaited(ticket, candidate)
        folder = self._folder / run
        try:
            (folder / "run").mkdir(parents=True)
            words = written(self._words, candidate, folder / "run", folder / "run" / "result.json")
            executor = executor_of(str(folder))
            executor.update_parameters(**asked)
            job = submit(executor, carry_out, words, self._timeout, str(folder))
        except (OSError, RuntimeError, ValueError) as error:
            remedy = "see what sbatch says of such a job, then continue with --resume"
            raise FormatError(Fault("--slurm", "", f"the queue does not take the job: {error}", remedy)) from None
        awaited.job, awaited.ticket = job, replace(ticket, job=str(job.job_id))
        self._keep(awaited.ticket)

    def poll(self, number: int, *, wait: bool) -> Outcome | None:
        awaited = self._jobs[number]
        if wait:
            time.sleep(GLANCE)
        ended = self._ended(awaited)
        if ended is None:
            return None
        del self._jobs[number]
        assert awaited.candidate is not None
        return outcome_of_run(ended, self._folder / awaited.ticket.run / "run" / "result.json", awaited.candidate)

    def close(self) -> None:
        """Cancel what is queued or runs. What has ended without anyone having asked is left to the next search."""
        under_way = [*self._jobs.values(), *self._left.values()]
        self._jobs, self._left = {}, {}
        with_job = [replace(awaited, ticket=self._with_id(awaited.ticket)) for awaited in under_way]
        open_ones = [awaited for awaited in with_job if not self._has_ended(awaited.ticket)]
        still = [awaited.ticket for awaited in open_ones if awaited.ticket.job and not _is_over(awaited)]
        self._cancel(still, "cancelled {jobs} in the queue")
        for awaited in open_ones:
            if awaited.ticket not in still:
                self._forget(awaited.ticket)
        if self._tickets is not None:
            self._tickets.settle(self._search)
        if self._sign is not None:
            self._sign.close()

    def _ended(self, awaited: _Awaited) -> Ended | None:
        """How a job ended, as its tasks wrote it down. A job that the queue lost, or whose node died, crashed."""
        folder, tasks = self._folder / awaited.ticket.run, awaited.ticket.tasks
        ended = ended_of(folder, tasks)
        if ended is not None or not awaited.job.done():
            return ended
        awaited.gone = awaited.gone or time.monotonic()
        if time.monotonic() - awaited.gone < LATE:
            return ended_of(folder, tasks)
        said = f"the job did not end: {_last_words(folder)}"
        return Ended(code=None, said=said, seconds=0.0)

    def _cancel(self, tickets: Sequence[Ticket], done: str) -> None:
        """Cancel jobs, say so, and forget them; one that will not end is kept for the next search."""
        there = cancel(self._cluster, {ticket.run: ticket.job for ticket in tickets})
        gone = [ticket for ticket in tickets if ticket.run not in there]
        self._tell(done, gone)
        remedy = "end them with scancel" if self._cluster == SLURM else "end these processes"
        self._tell("could not cancel {jobs}: " + remedy, [ticket for ticket in tickets if ticket.run in there])
        for ticket in gone:
            self._forget(ticket)

    def _keep(self, ticket: Ticket) -> None:
        if self._tickets is not None:
            self._tickets.keep(ticket)

    def _forget(self, ticket: Ticket) -> None:
        if self._tickets is not None:
            self._tickets.forget(ticket)

    def _tell(self, what: str, tickets: Sequence[Ticket]) -> None:
        """One line on stderr, which may be a terminal that is gone."""
        if self._quiet or not tickets:
            return
        count = f"{len(tickets)} job{'s' if len(tickets) > 1 else ''}"
        names = ", ".join(sorted(ticket.job or ticket.run for ticket in tickets))
        with suppress(OSError):
            sys.stderr.write(f"{what.format(jobs=count)}: {names}\n")
            sys.stderr.flush()

    def _signed(self) -> Sign:
        try:
            return Sign(self._folder, self._search)
        except OSError as error:
            rule, remedy = f"the folder of the queue cannot be written: {error}", "free space, or name another study"
            raise FormatError(Fault("--study", str(self._folder), rule, remedy)) from None

    def _is_near(self, ticket: Ticket) -> bool:
        """Whether the queue here is the one that has the job."""
        here = ticket.cluster == self._cluster
        return here and (self._cluster == SLURM or ticket.host == socket.gethostname())

    def _has_ended(self, ticket: Ticket) -> bool:
        return ended_of(self._folder / ticket.run, ticket.tasks) is not None

    def _with_id(self, ticket: Ticket) -> Ticket:
        """The ticket with the id of its job, also where its search was stopped before it could write that down."""
        return replace(ticket, job=ticket.job or id_in(self._folder / ticket.run))

    def _asks(self, candidate: Candidate) -> dict[str, Any]:
        """Nodes, accelerators and minutes of a plan; processes on this machine are given what there is."""
        asked: dict[str, Any] = {"timeout_min": ceil(self._timeout / 60) + SPARE}
        if self._cluster != SLURM:
            return asked
        cluster = candidate.job.cluster
        each = min(cluster.accelerators_per_node, cluster.num_accelerators)
        nodes = ceil(cluster.num_accelerators / each)
        return asked | {"nodes": nodes, "tasks_per_node": 1, "gpus_per_node": each}


def _is_over(awaited: _Awaited) -> bool:
    return awaited.job is not None and bool(awaited.job.done())


def _last_words(folder: Path) -> str:
    """The end of what the tasks of a job logged."""
    return " ".join(" ".join(_logs(folder)).split())[-500:] or f"nothing was logged in {folder}"


def _logs(folder: Path) -> Iterator[str]:
    for path in sorted(folder.glob("*_log.err")):
        with suppress(OSError), path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 2000))
            yield file.read(2000).decode(errors="replace")
