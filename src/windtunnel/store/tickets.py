"""The jobs of a queue that a study waits for, in its file: what a search that was killed leaves to the next."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import IO

from windtunnel.job.job import Job
from windtunnel.store.schema import QUEUED
from windtunnel.store.study_file import StudyFile

_RUN = re.compile(r"run-[0-9a-f]{12}")
_SEARCH = re.compile(r"search-[0-9a-f]{12}")
_JOB = re.compile(r"[0-9]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """A job of the queue and the plan it runs.

    ``run`` is the name of its folder, ``search`` the search that waits for it, ``cluster`` the kind of queue, ``host``
    where it was queued, ``job`` the id the queue gave it, empty while it has not answered; it has ``tasks`` tasks.
    """

    run: str
    oracle: str
    key: str
    search: str
    cluster: str
    host: str
    job: str
    tasks: int

    @property
    def sound(self) -> bool:
        """Whether its names may be made paths and arguments of."""
        patterns = ((_RUN, self.run), (_SEARCH, self.search), (_JOB, self.job))
        return all(pattern.fullmatch(text) for pattern, text in patterns) and 0 < self.tasks < 1_000_000


_COLUMNS = tuple(field.name for field in fields(Ticket))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tickets:
    """The tickets in a study, written for one oracle; ``key`` is the journal's."""

    file: StudyFile
    oracle: str
    key: Callable[[Job], str]

    def keep(self, ticket: Ticket) -> None:
        """Write a ticket down, or anew; on disk when this returns."""
        names = ", ".join((*_COLUMNS, "at"))
        marks = ", ".join("?" * (len(_COLUMNS) + 1))
        self._write(f"INSERT OR REPLACE INTO queued ({names}) VALUES ({marks})", *astuple(ticket), time.time())

    def forget(self, ticket: Ticket) -> None:
        self._write("DELETE FROM queued WHERE run = ?", ticket.run)

    def waiting(self) -> list[Ticket]:
        """Tickets some search waits for, or waited for when it was killed, of whichever oracle."""
        rows = self.file.read("queued", ", ".join(_COLUMNS), "WHERE search != '' ORDER BY at")
        tickets = (Ticket(**dict(zip(_COLUMNS, row, strict=True))) for row in rows)
        return [ticket for ticket in tickets if ticket.sound]

    def claim(self, ticket: Ticket, search: str) -> bool:
        """Take over a ticket; False where another search was sooner."""
        self._write("UPDATE queued SET search = ? WHERE run = ? AND search = ?", search, ticket.run, ticket.search)
        return bool(self.file.read("queued", "run", "WHERE run = ? AND search = ?", (ticket.run, search)))

    def answered(self, ticket: Ticket) -> bool:
        """Whether its trial is in the study."""
        return self.file.known(ticket.oracle, ticket.key) is not None

    def settle(self, search: str) -> None:
        """What was answered needs no one to wait for it; its id stays."""
        told = "EXISTS (SELECT 1 FROM trial t WHERE t.oracle = queued.oracle AND t.key = queued.key AND t.called = 1)"
        self._write(f"UPDATE queued SET search = '' WHERE search = ? AND {told}", search)

    def _write(self, statement: str, *values: object) -> None:
        self.file.write(statement, values, QUEUED)


class Sign:
    """A sign of life: a file in ``folder`` that is locked until this process ends, however it does."""

    def __init__(self, folder: Path, name: str) -> None:
        import fcntl

        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / f"{name}.lock"
        self._file: IO[bytes] = self._path.open("wb")
        with suppress(OSError):  # a disk without locks: no one can tell then
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def close(self) -> None:
        self._path.unlink(missing_ok=True)
        self._file.close()


def lives(folder: Path, name: str) -> bool:
    """Whether the process that gave this sign is still there; also where that cannot be told."""
    import fcntl

    try:
        with (folder / f"{name}.lock").open("r+b") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    (folder / f"{name}.lock").unlink(missing_ok=True)
    return False
