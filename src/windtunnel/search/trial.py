"""What a study is made of: proposals, what became of them, and the two together as trials."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Literal

from windtunnel.projection.choices import Changes

Status = Literal["ok", "illegal", "infeasible", "oom", "crashed", "timeout", "invalid"]
"""``illegal`` breaks a rule and ``infeasible`` exceeds the memory that is expected to be there: neither reached the
oracle. ``oom``, ``crashed``, ``timeout`` and ``invalid`` (an answer that cannot be true) came back from it."""
FREE = frozenset({"illegal", "infeasible"})
"""What costs no call."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """Changes to the job, by path as in ``--set``, and why they are worth a trial."""

    changes: Changes
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Seconds and bytes of a plan, or why there are none.

    ``provenance`` holds shares of the step time by where they come from; ``seconds`` is what the answer took,
    ``cost`` the accelerator-seconds it used.
    """

    status: Status
    step_time: float | None = None
    peak_device: float | None = None
    why: str = ""
    provenance: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    cost: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One proposal and its outcome; ``values`` are those of the objectives asked for, lower is better, empty unless
    the plan ran."""

    number: int
    proposer: str
    reason: str
    changes: Changes
    outcome: Outcome
    values: tuple[float, ...] = ()
    twin: bool = False
    """Whether an equal plan was part of the study before: it cost no call."""

    @property
    def called(self) -> bool:
        """Whether it took a call of the oracle, or of an earlier session's."""
        return not self.twin and self.outcome.status not in FREE

    @property
    def rank(self) -> tuple[float, float]:
        """What trials are ordered by: the first objective, then the step time."""
        return (self.values[0], self.outcome.step_time or inf) if self.values else (inf, inf)
