"""The plug: a proposer is asked for plans and told what became of every plan of the study."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Protocol

from windtunnel.job.job import Job
from windtunnel.search.rates import Rates
from windtunnel.search.space import Space
from windtunnel.search.trial import Proposal, Trial

Steps = Generator[Sequence[Proposal], Sequence[Trial], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What proposers search: the job they start from, the axes, the rates and prices by which those that guess order
    plans, and the seed of those that draw.

    ``by_time`` says that of two plans on as many accelerators the faster one is the better, as by every objective but
    memory.
    """

    job: Job
    space: Space
    rates: Rates
    seed: int = 0
    by_time: bool = True


class Proposer(Protocol):
    """Who says what to try next. What it proposes depends on what it was told and on nothing else, so that a study can
    be repeated and resumed."""

    @property
    def name(self) -> str: ...

    @property
    def finished(self) -> bool:
        """Whether it will never propose again."""
        ...

    def ask(self) -> Proposal | None:
        """The next plan; None while it waits for an answer, and once it has finished."""
        ...

    def tell(self, trial: Trial, *, own: bool) -> None:
        """One trial of the study, in the order of the proposals; ``own`` ones answer an ``ask`` of this proposer."""
        ...


class Stepwise(ABC):
    """A proposer written as a generator: it yields proposals that need not know of one another, and is sent their
    trials in the same order."""

    name: str

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.best: Trial | None = None
        """The best plan of the study so far, whoever proposed it."""
        self._steps: Steps | None = None
        self._waiting: list[Proposal] = []
        self._asked: list[Trial] = []
        self._due = 0
        self.finished = False

    @abstractmethod
    def steps(self) -> Steps:
        """The search."""

    def ask(self) -> Proposal | None:
        if self._steps is None:
            self._steps = self.steps()
            self._advance(None)
        return self._waiting.pop(0) if self._waiting else None

    def tell(self, trial: Trial, *, own: bool) -> None:
        if isfinite(trial.rank[0]) and trial.rank < (self.best.rank if self.best else (inf, inf)):
            self.best = trial
        if own:
            self._asked.append(trial)
            if len(self._asked) == self._due:
                self._advance(self._asked)

    def _advance(self, answers: Sequence[Trial] | None) -> None:
        """On to the next proposals; steps without any are answered at once."""
        assert self._steps is not None
        try:
            found = list(next(self._steps) if answers is None else self._steps.send(answers))
            while not found:
                found = list(self._steps.send([]))
        except StopIteration:
            self.finished, found = True, []
        self._waiting, self._asked, self._due = found, [], len(found)
