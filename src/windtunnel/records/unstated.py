"""What the source of a record leaves open, read every way: a job that fits one way is never called impossible."""

from __future__ import annotations

import re
from dataclasses import replace

from windtunnel.job.job import Job
from windtunnel.job.plan import FULL
from windtunnel.job.record import Record
from windtunnel.projection.memory import project_memory
from windtunnel.projection.result import Memory, Verdict

_RECOMPUTE = re.compile(r"recompute|checkpointing", re.IGNORECASE)
_OPEN = re.compile(r"not stated|unknown|doubtful|may differ|may not be those measured|current repo")


def leaves_recompute_open(record: Record) -> bool:
    """Whether one of the record's own assumptions says that its source does not state what was recomputed."""
    return any(_RECOMPUTE.search(line) and _OPEN.search(line) for line in record.assumed)


def readings(record: Record, given: Memory) -> tuple[Memory, ...]:
    """The memory of the job as given, and with no layer and every layer recomputed where its source does not say."""
    if not leaves_recompute_open(record):
        return (given,)
    return (given, *(project_memory(_recomputing(record.job, what)) for what in (frozenset[str](), frozenset({FULL}))))


def _recomputing(job: Job, what: frozenset[str]) -> Job:
    return replace(job, plan=replace(job.plan, recompute=(what,) * len(job.plan.recompute)))


def joint_verdict(found: tuple[Memory, ...]) -> Verdict:
    """The verdict as given, which comes first; that a job does not fit is borderline where another reading would."""
    given = found[0].verdict
    return "borderline" if given == "oom" and any(memory.verdict != "oom" for memory in found) else given
