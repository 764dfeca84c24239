"""What every proposer must do, whoever writes it: ``conforms(make)`` runs all of it.

``make(ground)`` builds the proposer under test; the oracle projects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from windtunnel.catalog.dump import job_to_mapping
from windtunnel.catalog.rates import rates
from windtunnel.errors import WindtunnelError
from windtunnel.job import Job
from windtunnel.projection.choices import Changes
from windtunnel.projection.project import project
from windtunnel.search.examine import Examiner
from windtunnel.search.objective import goal
from windtunnel.search.oracle import Projecting
from windtunnel.search.proposers import Ground, Proposer
from windtunnel.search.screen import Candidate, Screen
from windtunnel.search.space import Space
from windtunnel.search.study import Ending, Study
from windtunnel.search.trial import FREE, Outcome, Trial
from windtunnel.store.journal import InMemory

Make = Callable[[Ground], Proposer]
Vary = Callable[[Mapping[str, Any]], Job]
CALLS = 25


def study_of(make: Make, job: Job, space: Space, vary: Vary, *, calls: int = CALLS, **other: Any) -> Study:
    examiner = Examiner(job=job, space=space, vary=vary)
    parts: dict[str, Any] = {
        "proposers": [make(Ground(job=job, space=space, rates=rates(), seed=3))],
        "oracle": Projecting(projected=project),
        "screen": Screen(vary=vary, write=lambda changes: examiner.written(changes) or changes),
        "goal": goal(["throughput"], job),
        "journal": InMemory(job_to_mapping),
        "most_calls": calls,
    }
    return Study(**(parts | other))


def ran(study: Study) -> Ending:
    return study.run(lambda: False, lambda: None)


class Late:
    """An oracle with several workers whose answers come in another order each time."""

    name = "late"

    def __init__(self, workers: int, order: int) -> None:
        self.workers = workers
        self.polls = order
        self.running: dict[int, Candidate] = {}

    def start(self, number: int, candidate: Candidate) -> None:
        self.running[number] = candidate

    def poll(self, number: int, *, wait: bool) -> Outcome | None:
        self.polls += 7
        if self.polls % 3 and not wait:
            return None
        answer = project(self.running.pop(number).job)
        return Outcome(status="ok", step_time=answer.step_time, peak_device=answer.memory.peak.device)


class Failing(Projecting):
    """An oracle that fails in every way there is, in turn."""

    ways = ("crashed", "ok", "timeout", "ok", "oom", "invalid", "ok")

    def poll(self, number: int, *, wait: bool) -> Outcome | None:
        found = super().poll(number, wait=wait)
        way: Any = self.ways[number % len(self.ways)]
        return found if found is None or way == "ok" else Outcome(status=way, why="as told")


def told(trials: list[Trial]) -> list[tuple[str, Changes, str, float | None]]:
    return [(trial.proposer, trial.changes, trial.outcome.status, trial.outcome.step_time) for trial in trials]


def conforms(make: Make, job: Job, space: Space, vary: Vary) -> None:
    plain = study_of(make, job, space, vary)
    ending = ran(plain)
    _budget_and_reasons(plain, ending)
    _refusals_name_a_rule(plain, vary)
    again = study_of(make, job, space, vary)
    ran(again)
    assert told(again.trials) == told(plain.trials), "the same study proposes the same plans"
    _order_of_answers_does_not_matter(make, job, space, vary)
    failing = study_of(make, job, space, vary, oracle=Failing(projected=project))
    assert ran(failing) in ("exhausted", "calls", "stuck")
    assert {trial.outcome.status for trial in failing.trials} & {"crashed", "ok"}
    nothing = study_of(make, job, space, vary, calls=0)
    assert ran(nothing) in ("calls", "exhausted")
    assert nothing.trials == []


def _budget_and_reasons(study: Study, ending: Ending) -> None:
    assert ending in ("exhausted", "calls")
    called = [trial for trial in study.trials if trial.outcome.status not in FREE]
    assert study.calls <= CALLS
    assert len(called) >= study.calls
    assert all(trial.reason for trial in study.trials)
    assert [trial.number for trial in study.trials] == list(range(len(study.trials)))
    best = min((trial for trial in study.trials if trial.values), key=lambda trial: trial.rank)
    assert study.best is not None
    assert study.best.rank == best.rank


def _refusals_name_a_rule(study: Study, vary: Vary) -> None:
    for trial in study.trials:
        if trial.outcome.status in FREE:
            assert trial.outcome.why, trial
        if trial.outcome.status == "ok" and "plan.pipeline.layout" not in trial.changes:
            assert vary(trial.changes)
        if trial.outcome.status == "illegal" and "plan.pipeline.layout" not in trial.changes:
            try:
                vary(trial.changes)
            except WindtunnelError:
                continue
            raise AssertionError(trial)


def _order_of_answers_does_not_matter(make: Make, job: Job, space: Space, vary: Vary) -> None:
    found = []
    for order in (0, 1, 5):
        study = study_of(make, job, space, vary, oracle=Late(3, order))
        ran(study)
        found.append(told(study.trials))
    assert found[0] == found[1] == found[2]
