"""Where a study looks plans up and writes trials down: in a file, or nowhere but here."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from windtunnel.job.job import Job
from windtunnel.projection.choices import Changes
from windtunnel.search.trial import Outcome, Trial
from windtunnel.store.study_file import StudyFile

Spell = Callable[[Job], Mapping[str, Any]]
"""The effective job as a job file has it."""


def key_of(mapping: Mapping[str, Any]) -> str:
    """The same text for mappings that say the same, in every process."""
    return blake2b(json.dumps(mapping, sort_keys=True).encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class InMemory:
    """A journal that forgets: a study itself knows the plans it has tried."""

    spell: Spell

    def key(self, job: Job) -> str:
        return key_of(self.spell(job))

    def known(self, key: str) -> Outcome | None:  # noqa: ARG002
        return None

    def record(self, key: str, trial: Trial, written: Changes) -> Outcome:  # noqa: ARG002
        return trial.outcome


@dataclass(frozen=True, slots=True)
class Kept:
    """A journal in a study file, for one oracle."""

    file: StudyFile
    oracle: str
    spell: Spell

    def key(self, job: Job) -> str:
        return key_of(self.spell(job))

    def known(self, key: str) -> Outcome | None:
        return self.file.known(self.oracle, key)

    def record(self, key: str, trial: Trial, written: Changes) -> Outcome:
        """What breaks a rule has no job: its changes are its key."""
        return self.file.record(self.oracle, key or "changes " + key_of(written), trial, written)
