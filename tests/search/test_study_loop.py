"""The loop of a study: workers, stops, and what another process knew sooner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from proposer_conformance import study_of

from windtunnel.catalog.jobs import load_job
from windtunnel.errors import Fault, FormatError
from windtunnel.job import Job
from windtunnel.projection.choices import Changes
from windtunnel.search.oracle import Projecting
from windtunnel.search.proposers import Ground
from windtunnel.search.proposers.base import Steps, Stepwise
from windtunnel.search.screen import Candidate
from windtunnel.search.space import default_space
from windtunnel.search.study import Study
from windtunnel.search.trial import Outcome, Proposal, Trial

JOB: dict[str, Any] = {
    "model": "llama3.2-1b",
    "cluster": {"accelerator": "h100-sxm-80gb", "num_accelerators": 8},
    "software": {"framework": "megatron-core", "date": "2025-02"},
    "plan": {"batch": {"micro_batch_size": 1, "global_batch_size": 64, "sequence_length": 256}},
}
TP = "plan.parallel.tp"


class Scripted(Stepwise):
    """Proposes what it was given, all at once."""

    name = "scripted"

    def __init__(self, ground: Ground, plans: Sequence[Changes]) -> None:
        super().__init__(ground)
        self.plans = plans

    def steps(self) -> Steps:
        yield [Proposal(changes, "as told") for changes in self.plans]


class Slow:
    """Runs whose ends are decided by the test: numbers in ``done`` have ended."""

    name = "slow"

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.started: dict[int, Candidate] = {}
        self.done: set[int] = set()

    def start(self, number: int, candidate: Candidate) -> None:
        self.started[number] = candidate

    def poll(self, number: int, *, wait: bool) -> Outcome | None:  # noqa: ARG002
        return Outcome(status="ok", step_time=1.0 + number) if number in self.done else None


class Known:
    """A journal in which someone else was sooner."""

    def __init__(self, answers: Mapping[str, Outcome]) -> None:
        self.answers = answers
        self.written: list[Trial] = []

    def key(self, job: Job) -> str:
        return f"tp {job.plan.parallel.tp}"

    def known(self, key: str) -> Outcome | None:  # noqa: ARG002
        return None

    def record(self, key: str, trial: Trial, written: Changes) -> Outcome:  # noqa: ARG002
        self.written.append(trial)
        return self.answers.get(key, trial.outcome)


def study(plans: Sequence[Changes], **other: Any) -> Study:
    job = load_job(JOB)
    vary = lambda changes: load_job(JOB, set=dict(changes), repairs=False)  # noqa: E731
    return study_of(lambda ground: Scripted(ground, plans), job, default_space(job), vary, **other)


def run(made: Study, looks: int) -> str:
    """Run until ``stop`` has been asked so often."""
    left = [looks]

    def stop() -> bool:
        left[0] -= 1
        return left[0] < 0

    return made.run(stop, lambda: None)


def test_what_ended_behind_a_long_run_counts_when_the_study_is_stopped() -> None:
    oracle, journal = Slow(3), Known({})
    oracle.done = {1, 2}
    made = study([{TP: 1}, {TP: 2}, {TP: 4}], oracle=oracle, journal=journal)
    assert run(made, 20) == "stopped"
    assert sorted(trial.number for trial in journal.written) == [1, 2]
    assert [trial.number for trial in made.trials] == [1, 2]
    assert made.best is not None
    assert made.best.number == 1


def test_what_ends_while_a_stop_is_asked_for_is_not_lost() -> None:
    oracle, journal = Slow(1), Known({})
    made = study([{TP: 1}, {TP: 2}], oracle=oracle, journal=journal)

    def stop() -> bool:
        oracle.done |= oracle.started.keys()
        return bool(oracle.started)

    assert made.run(stop, lambda: None) == "stopped"
    assert [trial.number for trial in journal.written] == [0]
    assert len(made.trials) == 1


def test_refused_plans_take_no_worker() -> None:
    oracle = Slow(2)
    illegal = [{TP: 3}, {TP: 5}, {TP: 7}]
    made = study([{TP: 1}, *illegal, {TP: 2}, {TP: 4}], oracle=oracle)
    run(made, 20)
    assert sorted(oracle.started) == [0, 4], "two runs at once, and no third"


def test_the_answer_that_was_kept_first_is_the_one_told() -> None:
    sooner = Outcome(status="ok", step_time=0.01, provenance={"measured": 1.0})
    made = study([{TP: 1}, {TP: 2}], journal=Known({"tp 2": sooner}))
    assert made.run(lambda: False, lambda: None) == "exhausted"
    assert made.trials[1].outcome == sooner
    assert made.best is made.trials[1]


@pytest.mark.parametrize("workers", [1, 2])
def test_equal_plans_are_one_call(workers: int) -> None:
    made = study([{TP: 2}, {TP: 2, "plan.parallel.pp": 1}, {TP: 1}], oracle=Slow(workers))
    made.oracle.done = {0, 1, 2, 3}  # type: ignore[attr-defined]
    assert made.run(lambda: False, lambda: None) == "exhausted"
    assert made.calls == 2
    assert made.trials[0].outcome == made.trials[1].outcome


def test_a_plan_that_cannot_be_projected_is_a_call_that_failed() -> None:
    def projected(job: Job) -> Any:
        raise FormatError(Fault("profile", "", "has no such op", "measure it"))

    made = study([{TP: 1}], oracle=Projecting(projected=projected))
    made.run(lambda: False, lambda: None)
    assert made.trials[0].outcome.status == "crashed"
    assert "no such op" in made.trials[0].outcome.why
    assert made.calls == 1
