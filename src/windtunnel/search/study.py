"""A study: proposals asked for, screened, tried by an oracle within a budget, told back and journalled.

Up to ``oracle.workers`` calls are under way; proposals that cost none take no worker. Answers are told in the order of
the proposals and each makes room for one more, so that what is proposed does not depend on which run ended first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Literal, Protocol

from windtunnel.job.job import Job
from windtunnel.projection.choices import Changes
from windtunnel.search.objective import Goal
from windtunnel.search.proposers.base import Proposer
from windtunnel.search.screen import Candidate, Screen
from windtunnel.search.trial import FREE, Outcome, Proposal, Trial

Ending = Literal["exhausted", "calls", "stopped", "stuck"]
"""Why a study ended: nothing more was proposed, the calls were spent, it was told to stop, or nothing that was
proposed could run."""


class Oracle(Protocol):
    """Who knows what a plan does: a model, a profile, or a run. Its failures are outcomes, never exceptions."""

    @property
    def name(self) -> str: ...

    @property
    def workers(self) -> int:
        """Plans it can work on at once."""
        ...

    def start(self, number: int, candidate: Candidate) -> None:
        """Begin to find out; returns at once where that takes long."""
        ...

    def poll(self, number: int, *, wait: bool) -> Outcome | None:
        """The outcome once there is one; with ``wait`` a moment is spent on waiting for it."""
        ...


class Journal(Protocol):
    """Where trials are kept. Plans have keys: equal jobs have equal ones."""

    def key(self, job: Job) -> str: ...

    def known(self, key: str) -> Outcome | None:
        """What an oracle call on an equal plan has come to before."""
        ...

    def record(self, key: str, trial: Trial, written: Changes) -> Outcome:
        """Keep a trial, and answer what is kept of its plan: another process may have been sooner."""
        ...


@dataclass(slots=True, kw_only=True)
class _Entry:
    number: int
    proposer: Proposer
    proposal: Proposal
    candidate: Candidate | None = None
    key: str = ""
    outcome: Outcome | None = None
    running: bool = False
    """Whether the oracle works on it."""
    twin: bool = False
    """Whether an equal plan is, or was, part of this study."""
    called: bool = False
    """Whether it takes one of the calls: the oracle or the journal answers it."""


@dataclass(slots=True, kw_only=True)
class Study:
    """One search by proposers, in turn, through one oracle.

    ``calls`` counts plans the oracle was or had been asked about, those found in the journal included: a resumed study
    ends where an uninterrupted one does.
    """

    proposers: Sequence[Proposer]
    oracle: Oracle
    screen: Screen
    goal: Goal
    journal: Journal
    most_calls: float = inf
    trials: list[Trial] = field(default_factory=list)
    best: Trial | None = None
    calls: int = 0
    reused: int = 0
    """Calls that the journal answered."""
    _under_way: list[_Entry] = field(default_factory=list)
    _seen: dict[str, Outcome | None] = field(default_factory=dict)

    def run(self, stop: Callable[[], bool], tick: Callable[[], None]) -> Ending:
        """Propose, try, tell until one of the endings. ``stop`` and ``tick`` are called between answers."""
        free = 0
        while True:
            if stop():
                self._wind_up()
                return "stopped"
            refused = bool(self._under_way) and not self._under_way[0].called
            if not refused and self._has_room() and (entry := self._ask()) is not None:
                self._begin(entry)
                continue
            if not self._under_way:
                return "calls" if self.calls >= self.most_calls else "exhausted"
            trial = self._collect()
            tick()
            if trial is not None:
                free = free + 1 if trial.outcome.status in FREE else 0
                if free >= STUCK:
                    self._wind_up()
                    return "stuck"

    def _has_room(self) -> bool:
        """A free worker; what waits behind a long run is bounded too."""
        return sum(entry.called for entry in self._under_way) < self.oracle.workers and len(self._under_way) < STUCK

    def _ask(self) -> _Entry | None:
        """The next proposal of the first proposer that is not done; None while it waits, or when calls are spent."""
        if self.calls >= self.most_calls:
            return None
        for proposer in self.proposers:
            if proposer.finished:
                continue
            proposal = proposer.ask()
            if proposal is not None:
                number = len(self.trials) + len(self._under_way)
                return _Entry(number=number, proposer=proposer, proposal=proposal)
            if not proposer.finished:
                return None
        return None

    def _begin(self, entry: _Entry) -> None:
        """Screen a proposal and start the oracle on what no one has tried."""
        self._under_way.append(entry)
        found = self.screen.look(entry.proposal.changes)
        if isinstance(found, Outcome):
            entry.outcome = found
            return
        entry.candidate, entry.key = found, self.journal.key(found.job)
        if entry.key in self._seen:
            entry.twin = True
            return
        entry.outcome = self.journal.known(entry.key)
        if entry.outcome is None:
            entry.outcome = self.screen.refusal(found)
        else:
            self.reused += 1
        self._seen[entry.key] = None
        entry.called = entry.outcome is None or entry.outcome.status not in FREE
        self.calls += entry.called
        if entry.outcome is None:
            entry.running = True
            self.oracle.start(entry.number, found)

    def _collect(self) -> Trial | None:
        """Write down every run that has ended, and tell the oldest proposal if it was answered."""
        head = self._under_way[0]
        self._write_down(waiting_for=head)
        if head.outcome is None:
            return None
        self._under_way.pop(0)
        return self._told(head)

    def _write_down(self, waiting_for: _Entry | None = None) -> None:
        for entry in self._under_way:
            if entry.running:
                entry.outcome = self.oracle.poll(entry.number, wait=entry is waiting_for)
                if entry.outcome is not None:
                    entry.running = False
                    entry.outcome = self._journal(entry)
            elif entry.twin and entry.outcome is None:
                entry.outcome = self._seen[entry.key]

    def _wind_up(self) -> None:
        """What has been answered counts, also behind a run that is still going on."""
        self._write_down()
        for entry in self._under_way:
            if entry.outcome is not None:
                self._told(entry)
        self._under_way.clear()

    def _journal(self, entry: _Entry) -> Outcome:
        """The outcome as it is kept."""
        written = entry.candidate.written if entry.candidate else entry.proposal.changes
        return self.journal.record(entry.key, self._trial(entry), written)

    def _told(self, entry: _Entry) -> Trial:
        trial = self._trial(entry)
        if trial.outcome.status in FREE and not entry.twin:
            self._journal(entry)
        if entry.candidate is not None and not entry.twin:
            self._seen[entry.key] = trial.outcome
            self.screen.learn(entry.candidate, trial.outcome)
        self.trials.append(trial)
        if trial.values and isfinite(trial.rank[0]) and (self.best is None or trial.rank < self.best.rank):
            self.best = trial
        for proposer in self.proposers:
            proposer.tell(trial, own=proposer is entry.proposer)
        return trial

    def _trial(self, entry: _Entry) -> Trial:
        outcome, candidate = entry.outcome, entry.candidate
        assert outcome is not None
        values: tuple[float, ...] = ()
        if outcome.status == "ok" and candidate is not None and outcome.step_time is not None:
            peak = candidate.peak_device if outcome.peak_device is None else outcome.peak_device
            values = self.goal.values(candidate.job, outcome.step_time, peak)
        return Trial(
            number=entry.number,
            proposer=entry.proposer.name,
            reason=entry.proposal.reason,
            changes=entry.proposal.changes,
            outcome=outcome,
            values=values,
            twin=entry.twin,
        )


STUCK = 5000
"""Proposals in a row that cost no call after which a study ends."""
