"""Notes and messages on disk: once each, beside studies that know nothing of them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from store_writer import trial

from windtunnel.store.notebook import Bound, Loose, Message, Note, Notebook, messages_of, notes_of
from windtunnel.store.study_file import StudyFile

NOTE = Note(
    number=0, kind="hypothesis", text="it ‘should’ help", trial=3, data={"expect": -0.06, "changes": {"a": [1]}}
)
MESSAGE = Message(model="m", request="digest", asked="[]", response='[{"parts": []}]')


@pytest.mark.parametrize("kind", ["loose", "bound"])
def test_a_notebook_gives_back_what_was_written(kind: str, tmp_path: Path) -> None:
    file = StudyFile.create(str(tmp_path / "s.db"), {})
    book: Notebook = Loose() if kind == "loose" else Bound(file)
    assert book.notes() == []
    book.note(NOTE)
    (kept,) = book.notes()
    assert (kept.number, kept.kind, kept.text, kept.trial, dict(kept.data)) == (
        0, NOTE.kind, NOTE.text, 3, dict(NOTE.data)
    )  # fmt: skip
    assert book.answered("m", "digest") is None
    book.keep(MESSAGE)
    assert book.answered("m", "digest") == MESSAGE.response
    assert book.answered("other", "digest") is None
    assert book.answered("m", "other") is None
    file.close()


def test_what_is_said_again_is_kept_once(tmp_path: Path) -> None:
    file = StudyFile.create(str(tmp_path / "s.db"), {})
    book = Bound(file)
    for _ in range(3):
        book.note(NOTE)
        book.keep(MESSAGE)
    book.keep(Message(model="m", request="digest", asked="[]", response="another"))
    assert len(list(notes_of(file))) == 1
    assert [item.response for item in messages_of(file)] == [MESSAGE.response], "the first answer stays"
    file.close()


def test_a_study_without_a_model_has_no_notes_and_reads_as_before(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    file = StudyFile.create(str(path), {"job": {}})
    file.record("o", "k", trial(0), {})
    assert list(notes_of(file)) == []
    assert list(messages_of(file)) == []
    Bound(file).note(NOTE)
    file.close()
    again = StudyFile.open(str(path))
    assert [row.trial for row in again.rows()] == [trial(0)]
    assert len(list(notes_of(again))) == 1
    again.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone()[0] == 1
