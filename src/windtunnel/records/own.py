"""A user's own measured runs, as evidence for anchoring."""

from __future__ import annotations

from collections.abc import Iterable

from windtunnel.catalog.records import SkippedRecord, load_records
from windtunnel.job.job import Job
from windtunnel.records.compare import measured_step_time


def own_runs(paths: Iterable[str]) -> list[tuple[Job, float]]:
    """Job and measured seconds of every record with a speed. Raises MissingError, FormatError, and the error of the
    first record that cannot be used: a run one names oneself should not be dropped silently."""
    found = []
    for record in load_records(paths):
        if isinstance(record, SkippedRecord):
            raise record.error
        seconds = measured_step_time(record)
        if seconds is not None:
            found.append((record.job, seconds))
    return found
