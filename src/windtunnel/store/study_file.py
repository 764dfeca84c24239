"""A study on disk: SQLite in WAL mode; a trial is committed before anyone is told of it."""

from __future__ import annotations

import json
import math
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from windtunnel.errors import Fault, FormatError, MissingError
from windtunnel.projection.choices import Changes
from windtunnel.search.trial import FREE, Outcome, Trial
from windtunnel.store.schema import APPLICATION, TABLES, VERSION

BUSY = 60.0
"""Seconds a writer waits for another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One trial as it is kept; ``plan`` holds the changes as a job file has them."""

    trial: Trial
    oracle: str
    plan: Changes
    at: float


class StudyFile:
    """Open, read, append. Raises FormatError where the file is not, or no longer, a study, or cannot be written."""

    def __init__(self, path: str, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection

    @classmethod
    def create(cls, path: str, facts: Mapping[str, Any]) -> StudyFile:
        """A new study, or the one that is there: whoever comes first writes the facts."""
        folder = os.path.dirname(os.path.abspath(path))
        if not os.path.isdir(folder):
            raise MissingError(Fault(path, "", "its folder does not exist", "create the folder first"))
        study = cls(path, _connected(path))
        with study._saying():
            study._connection.execute("BEGIN IMMEDIATE")
            if not _tables(study._connection):
                for statement in filter(str.strip, TABLES.split(";")):
                    study._connection.execute(statement)
                study._connection.execute(f"PRAGMA application_id = {APPLICATION}")
                study._connection.execute(f"PRAGMA user_version = {VERSION}")
                pairs = [(name, json.dumps(value)) for name, value in facts.items()]
                study._connection.executemany("INSERT INTO study VALUES (?, ?)", pairs)
            study._connection.execute("COMMIT")
        study._check()
        return study

    @classmethod
    def open(cls, path: str) -> StudyFile:
        """A study that exists. Raises MissingError where it does not."""
        if not os.path.exists(path):
            raise MissingError(Fault(path, "", "no such study", "tune --study FILE starts one"))
        study = cls(path, _connected(path))
        study._check()
        return study

    def close(self) -> None:
        self._connection.close()

    def facts(self) -> dict[str, Any]:
        """What the study is about, as it was created."""
        with self._saying():
            rows = self._connection.execute("SELECT name, value FROM study").fetchall()
            return {str(name): json.loads(value) for name, value in rows}

    def rows(self) -> Iterator[Row]:
        """Every trial, in the order in which they were written."""
        with self._saying():
            found = self._connection.execute(f"SELECT {', '.join(_COLUMNS)} FROM trial ORDER BY id").fetchall()
            rows = [_row(dict(zip(_COLUMNS, values, strict=True))) for values in found]
        yield from rows

    def known(self, oracle: str, key: str) -> Outcome | None:
        """What the oracle said of a plan; None where it was not asked."""
        with self._saying():
            found = self._connection.execute(
                f"SELECT {', '.join(_COLUMNS)} FROM trial WHERE oracle = ? AND key = ? AND called = 1", (oracle, key)
            ).fetchone()
            return None if found is None else _row(dict(zip(_COLUMNS, found, strict=True))).trial.outcome

    def record(self, oracle: str, key: str, trial: Trial, plan: Changes) -> Outcome:
        """Append a trial, on disk when this returns, and answer what is kept: a plan the oracle has answered keeps its
        first answer, also where another process was sooner; one that the screen refused may still be answered."""
        outcome, called = trial.outcome, trial.outcome.status not in FREE
        values = (
            trial.number, key, oracle, int(called), trial.proposer, trial.reason, json.dumps(trial.changes),
            json.dumps(plan), outcome.status, outcome.step_time, outcome.peak_device, outcome.why,
            json.dumps(dict(outcome.provenance)), outcome.seconds, outcome.cost,
            json.dumps([value if math.isfinite(value) else None for value in trial.values]), time.time(),
        )  # fmt: skip
        names = ("number", "key", "oracle", "called", *_COLUMNS[3:])
        updates = ", ".join(f"{name} = excluded.{name}" for name in names if name not in ("key", "oracle"))
        with self._saying():
            self._connection.execute(
                f"INSERT INTO trial ({', '.join(names)}) VALUES ({', '.join('?' * len(names))}) "
                f"ON CONFLICT (oracle, key) DO UPDATE SET {updates} WHERE excluded.called = 1 AND trial.called = 0",
                values,
            )
        return (self.known(oracle, key) or outcome) if called else outcome

    def write(self, statement: str, values: Sequence[Any], tables: str) -> None:
        """Carry out one statement on tables that are made first where they are not there."""
        with self._saying():
            for table in filter(str.strip, tables.split(";")):
                self._connection.execute(table)
            self._connection.execute(statement, values)

    def read(self, table: str, columns: str, rest: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Rows of a table; none where the study has no such table."""
        with self._saying():
            there = self._connection.execute("SELECT count(*) FROM sqlite_master WHERE name = ?", (table,)).fetchone()
            if not there[0]:
                return []
            return self._connection.execute(f"SELECT {columns} FROM {table} {rest}", values).fetchall()

    def _check(self) -> None:
        with self._saying():
            kind = self._connection.execute("PRAGMA application_id").fetchone()[0]
            version = self._connection.execute("PRAGMA user_version").fetchone()[0]
            sound = self._connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if kind != APPLICATION:
            raise FormatError(Fault(self.path, "", "is a database, but not a study", "name a file that tune wrote"))
        if version != VERSION:
            rule = f"was written by another version of the format than {VERSION}"
            raise FormatError(Fault(self.path, str(version), rule, "read it with the windtunnel that wrote it"))
        if sound != "ok":
            raise FormatError(Fault(self.path, "", f"the study is damaged: {' '.join(str(sound).split())}", _DAMAGED))

    @contextmanager
    def _saying(self) -> Iterator[None]:
        """SQLite's complaints as ours; a transaction that failed leaves nothing behind."""
        try:
            yield
        except (sqlite3.Error, json.JSONDecodeError) as error:
            if self._connection.in_transaction:
                self._connection.rollback()
            raise _fault(self.path, error) from None


_COLUMNS = (
    "number", "key", "oracle", "proposer", "reason", "changes", "plan", "status", "step_time", "peak_device", "why",
    "provenance", "seconds", "cost", "objectives", "at",
)  # fmt: skip
_DAMAGED = "restore a copy, or start a new study"


def _connected(path: str) -> sqlite3.Connection:
    """A connection that commits each statement, to disk. A database of someone else is left as it is."""
    connection = None
    try:
        connection = sqlite3.connect(path, timeout=BUSY, isolation_level=None)
        kind = connection.execute("PRAGMA application_id").fetchone()[0]
        if kind == APPLICATION or not _tables(connection):
            _log_ahead(connection)
        connection.execute("PRAGMA synchronous = FULL")
    except sqlite3.Error as error:
        if connection is not None:
            connection.close()
        raise _fault(path, error) from None
    return connection


def _tables(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])


def _log_ahead(connection: sqlite3.Connection) -> None:
    """Switch to WAL. SQLite does not wait where several processes do so at once: we do."""
    end = time.monotonic() + BUSY
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(0.01)
        else:
            return


def _fault(path: str, error: Exception) -> FormatError:
    text = str(error)
    code = getattr(error, "sqlite_errorcode", None)
    full = code is not None and code & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
    if full:
        remedy = "free space, then continue with --resume: every trial reported so far is in it"
        return FormatError(Fault(path, "", f"the study cannot be written: {text}", remedy))
    if code is not None and code & 0xFF == sqlite3.SQLITE_BUSY:
        return FormatError(Fault(path, "", f"another process keeps the study locked: {text}", "try again later"))
    if code is not None and code & 0xFF in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
        return FormatError(Fault(path, "", f"the study cannot be opened: {text}", "name a file this user may write"))
    return FormatError(Fault(path, "", f"not a study, or damaged: {text}", _DAMAGED))


def _row(found: Mapping[str, Any]) -> Row:
    outcome = Outcome(
        status=found["status"],
        step_time=found["step_time"],
        peak_device=found["peak_device"],
        why=found["why"],
        provenance=json.loads(found["provenance"]),
        seconds=found["seconds"],
        cost=found["cost"],
    )
    trial = Trial(
        number=found["number"],
        proposer=found["proposer"],
        reason=found["reason"],
        changes=json.loads(found["changes"]),
        outcome=outcome,
        values=tuple(math.inf if value is None else value for value in json.loads(found["objectives"])),
    )
    return Row(trial=trial, oracle=found["oracle"], plan=json.loads(found["plan"]), at=found["at"])
