"""Proposers that stop after so many calls, to leave some for those after them."""

from __future__ import annotations

from windtunnel.search.proposers.base import Proposer
from windtunnel.search.trial import Proposal, Trial


class Turn:
    """Another proposer, until ``most_calls`` of its plans were tried."""

    def __init__(self, proposer: Proposer, most_calls: int) -> None:
        self._proposer = proposer
        self._most_calls = most_calls
        self._calls = 0
        self._under_way = 0

    @property
    def name(self) -> str:
        return self._proposer.name

    @property
    def finished(self) -> bool:
        return self._proposer.finished or self._calls >= self._most_calls

    def ask(self) -> Proposal | None:
        """None also while as many plans are under way as it may still try."""
        if self._calls + self._under_way >= self._most_calls:
            return None
        found = self._proposer.ask()
        self._under_way += found is not None
        return found

    def tell(self, trial: Trial, *, own: bool) -> None:
        if own:
            self._under_way -= 1
            self._calls += trial.called
        self._proposer.tell(trial, own=own)
