"""Where a study looks plans up and writes trials down: in a file, or nowhere but here."""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import blake2b

from windtunnel.catalog.dump import job_to_mapping
from windtunnel.job.job import Job
from windtunnel.projection.choices import Changes
from windtunnel.search.trial import Outcome, Trial
from windtunnel.store.study_file import StudyFile


def key_of(job: Job) -> str:
    """The same text for jobs that are the same in effect, in every process."""
    return _hash(job_to_mapping(job))


def _hash(value: object) -> str:
    return blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class InMemory:
    """A journal that forgets."""

    def key(self, job: Job) -> str:
        return key_of(job)

    def known(self, key: str) -> Outcome | None:  # noqa: ARG002
        return None

    def record(self, key: str, trial: Trial, written: Changes) -> None:  # noqa: ARG002
        return None


@dataclass(frozen=True, slots=True)
class Kept:
    """A journal in a study file, for one oracle."""

    file: StudyFile
    oracle: str

    def key(self, job: Job) -> str:
        return key_of(job)

    def known(self, key: str) -> Outcome | None:
        return self.file.known(self.oracle, key)

    def record(self, key: str, trial: Trial, written: Changes) -> None:
        """What breaks a rule has no job: its changes are its key."""
        self.file.record(self.oracle, key or "changes " + _hash(written), trial, written)
