"""What a person wants to read afterwards: what was tried, why, what happened, what was learnt."""

from __future__ import annotations

from typing import Any

from windtunnel.agent.words import Secrets, clean
from windtunnel.store.notebook import Note, Notebook

KINDS = ("plan", "hypothesis", "outcome", "refused", "lesson", "warning", "end")
"""``plan``, ``hypothesis``, ``lesson`` and ``end`` may be the model's words; ``outcome`` and ``refused`` never are."""


class Journal:
    """Notes of one run, numbered, without secrets and control characters."""

    def __init__(self, notebook: Notebook, secrets: Secrets) -> None:
        self.notebook = notebook
        self.secrets = secrets
        self.lessons: list[str] = []
        self._number = 0

    def say(self, kind: str, text: str, trial: int | None = None, **data: Any) -> None:
        words = clean(self.secrets.out_of(text))
        if not words:
            return
        if kind == "lesson":
            self.lessons.append(words)
        self.notebook.note(Note(number=self._number, kind=kind, text=words, trial=trial, data=data))
        self._number += 1
