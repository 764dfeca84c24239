"""The journal and the conversation of a study, in its file or nowhere but here."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from windtunnel.store.schema import NOTES
from windtunnel.store.study_file import StudyFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A line of the journal: what kind of thing is said, the words, the trial it is about, figures that belong to it.

    ``number`` counts the notes of a run, ``at`` is in Unix seconds.
    """

    number: int
    kind: str
    text: str
    trial: int | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One answer of a language model, and what was new in the request it answered; both as JSON text."""

    model: str
    request: str
    asked: str
    response: str
    at: float = 0.0


class Notebook(Protocol):
    """Where notes and messages are kept."""

    def note(self, note: Note) -> None: ...

    def notes(self) -> list[Note]: ...

    def answered(self, model: str, request: str) -> str | None:
        """What the model said to an equal request before."""
        ...

    def keep(self, message: Message) -> None: ...


@dataclass(slots=True)
class Loose:
    """A notebook that is gone with the process."""

    _notes: list[Note] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)

    def note(self, note: Note) -> None:
        self._notes.append(note)

    def notes(self) -> list[Note]:
        return list(self._notes)

    def answered(self, model: str, request: str) -> str | None:
        found = (item.response for item in self.messages if (item.model, item.request) == (model, request))
        return next(found, None)

    def keep(self, message: Message) -> None:
        self.messages.append(message)


@dataclass(frozen=True, slots=True)
class Bound:
    """A notebook in a study file; what is written is on disk when a call returns."""

    file: StudyFile

    def note(self, note: Note) -> None:
        """Append a note, once: a run that is resumed says again what it said."""
        values = (note.number, note.kind, note.text, note.trial, json.dumps(dict(note.data)), time.time())
        self.file.write(
            "INSERT OR IGNORE INTO note (number, kind, text, trial, data, at) VALUES (?, ?, ?, ?, ?, ?)", values, NOTES
        )

    def notes(self) -> list[Note]:
        return list(notes_of(self.file))

    def answered(self, model: str, request: str) -> str | None:
        rows = self.file.read("message", "response", "WHERE model = ? AND request = ?", (model, request))
        return str(rows[0][0]) if rows else None

    def keep(self, message: Message) -> None:
        values = (message.model, message.request, message.asked, message.response, time.time())
        self.file.write(
            "INSERT OR IGNORE INTO message (model, request, asked, response, at) VALUES (?, ?, ?, ?, ?)", values, NOTES
        )


def notes_of(file: StudyFile) -> Iterator[Note]:
    """The journal of a study, in the order in which it was written."""
    for number, kind, text, trial, data, at in file.read("note", "number, kind, text, trial, data, at", "ORDER BY id"):
        yield Note(number=number, kind=kind, text=text, trial=trial, data=json.loads(data), at=at)


def messages_of(file: StudyFile) -> Iterator[Message]:
    """The conversation of a study, in the order in which it was held."""
    for model, request, asked, response, at in file.read(
        "message", "model, request, asked, response, at", "ORDER BY id"
    ):
        yield Message(model=model, request=request, asked=asked, response=response, at=at)
