"""What a trial may change, and who takes how many turns."""

from __future__ import annotations

from typing import Any

import pytest
from proposer_conformance import conforms, ran, study_of

from windtunnel.catalog.jobs import load_job
from windtunnel.catalog.rates import rates
from windtunnel.errors import LegalityError
from windtunnel.job import Job
from windtunnel.search.mandate import outside, reads_files, within
from windtunnel.search.proposers import PROPOSERS, Ground
from windtunnel.search.proposers.turns import Turn
from windtunnel.search.space import default_space
from windtunnel.search.trial import FREE

BASE: dict[str, Any] = {
    "model": "llama3.1-8b",
    "cluster": {"accelerator": "h100-sxm-80gb", "num_accelerators": 8},
    "software": {"framework": "megatron-core", "date": "2025-06"},
    "plan": {"batch": {"micro_batch_size": 1, "global_batch_size": 32, "sequence_length": 4096}},
}


def vary(changes: Any) -> Job:
    return load_job(BASE, set=dict(changes), repairs=False)


SPACE = default_space(vary({}))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {axis.path: axis.values[0] for axis in SPACE.axes},
        {"plan.pipeline.layout": "Et*32L", "plan.recompute": {"policy": "full", "layers": [3]}},
        {"plan.recompute.policy": "full"},
        {"plan.pipeline.orders": [["F0.0", "B0.0"]]},
        {"plan.moe.dispatcher": "deepep", "plan.moe.sync_free": True, "plan.overlap.delay_wgrad": True},
    ],
)
def test_plans_are_up_to_a_search(changes: Any) -> None:
    assert outside(changes, SPACE) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"plan.batch.global_batch_size": 16},
        {"plan.batch.sequence_length": 16},
        {"plan.batch": {"micro_batch_size": 1}},
        {"plan": {}},
        {"plan.precision": {"compute": "fp8"}},
        {"plan.precision.grads": "bf16"},
        {"plan.moe": {"sync_free": True}},
        {"plan.moe.capacity_factor": 0.1},
        {"plan.optimizer": "sgd"},
        {"cluster.num_accelerators": 64},
        {"cluster.hbm_capacity": "1 TiB"},
        {"software.cuda_graphs": "full_iteration"},
        {"model": "llama3.2-1b"},
        {"run.tokens": 1},
        {"plan.pipeline.orders": "/etc/passwd"},
        {"plan.pipeline": {"orders": "/etc/passwd"}},
    ],
)
def test_what_is_trained_and_on_what_is_not(changes: Any) -> None:
    faults = outside(changes, SPACE)
    assert faults
    assert all(fault.rule and fault.remedy for fault in faults)
    with pytest.raises(LegalityError):
        within(vary, SPACE)(changes)


def test_what_the_space_names_is() -> None:
    wider = SPACE.pinned({"plan.precision.compute": ("bf16", "fp8"), "cluster.num_accelerators": (4, 8)})
    assert outside({"plan.precision.compute": "fp8", "cluster.num_accelerators": 4}, wider) == []
    assert within(vary, wider)({"cluster.num_accelerators": 4}).cluster.num_accelerators == 4


def test_names_of_files_are_found_wherever_they_are() -> None:
    assert len(reads_files({"model": "x", "plan": {"pipeline": {"orders": "f"}}, "model.base": "y"})) == 3
    assert reads_files({"plan.pipeline.orders": [["F0.0"]], "plan.pipeline.layout": "Et*32L"}) == []


def test_a_turn_conforms_and_ends_after_its_calls() -> None:
    job = vary({})
    conforms(lambda ground: Turn(PROPOSERS["seed"](ground), 9), job, SPACE, vary)
    ground = Ground(job=job, space=SPACE, rates=rates())
    proposers = [Turn(PROPOSERS["seed"](ground), 5), PROPOSERS["random"](ground)]
    study = study_of(PROPOSERS["seed"], job, SPACE, vary, calls=9, proposers=proposers)
    ran(study)
    called = [trial.proposer for trial in study.trials if trial.outcome.status not in FREE]
    assert called[:5] == ["seed"] * 5
    assert "random" in called[5:]
    assert "seed" not in called[5:]
