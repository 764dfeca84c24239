"""The exhaustive search as a proposer: it scores every plan by the model and proposes the best of them, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from windtunnel.search.exhaustive import Plan
from windtunnel.search.proposers.base import Ground, Steps, Stepwise
from windtunnel.search.trial import Proposal


class Certified(Stepwise):
    """``searched`` carries out the search when the first proposal is due. Where the oracle is the model itself the
    first proposal is the optimum; a costly oracle gets the plans the model ranks first."""

    name = "exhaustive"

    def __init__(self, ground: Ground, searched: Callable[[], Sequence[Plan]]) -> None:
        super().__init__(ground)
        self._searched = searched

    def steps(self) -> Steps:
        plans = self._searched()
        yield [
            Proposal(plan.changes, f"rank {rank} of every plan, {plan.step_time:.4g} s by the model")
            for rank, plan in enumerate(plans, start=1)
        ]
