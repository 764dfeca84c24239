"""What seed and local propose first, of two small jobs, whatever the model of time says: by rates and catalog alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from windtunnel.catalog.jobs import load_job
from windtunnel.catalog.rates import rates
from windtunnel.job import Job
from windtunnel.projection.choices import ACTIVATION_OFFLOAD, OPTIMIZER_OFFLOAD, RECOMPUTE, SHARDING
from windtunnel.search.proposers import PROPOSERS, Ground
from windtunnel.search.proposers.ladder import shown
from windtunnel.search.space import Axis, Space
from windtunnel.search.trial import Outcome, Proposal, Trial

KEPT = Path(__file__).parents[1] / "data" / "proposals.json"
FIRST = 30
BASE: dict[str, Any] = {
    "model": "llama3.1-8b",
    "cluster": {"accelerator": "h100-sxm-80gb", "num_accelerators": 16},
    "software": {"framework": "megatron-core", "date": "2025-06"},
    "plan": {"batch": {"micro_batch_size": 1, "global_batch_size": 64, "sequence_length": 4096}},
}
JOBS = {"dense": {}, "moe": {"model": "qwen3-30b-a3b"}}
AXES: dict[str, tuple[Any, ...]] = {
    "plan.parallel.tp": (1, 2, 4, 8),
    "plan.parallel.pp": (1, 2, 4),
    "plan.parallel.ep": (1, 8),
    "plan.pipeline.schedule": ("1f1b", "interleaved_1f1b", "zb_h1", "zbv", "v_half"),
    "plan.pipeline.virtual_stages": (1, 2, 4),
    "plan.batch.micro_batch_size": (1, 2),
    "plan.parallel.sequence_parallel": (False, True),
    RECOMPUTE: (
        {"policy": "none"},
        {"policy": "selective"},
        {"policy": "modules", "modules": ["layernorm", "mlp"]},
        {"policy": "block", "num_layers": 2},
        {"policy": "full"},
    ),
    SHARDING: ("zero1", "zero2", "fsdp", "zero3"),
    OPTIMIZER_OFFLOAD: ("none", "cpu"),
    ACTIVATION_OFFLOAD: ("none", "full"),
    "plan.overlap.tp_comm": (False, True),
}
GIVEN_UP = (SHARDING, RECOMPUTE, OPTIMIZER_OFFLOAD, ACTIVATION_OFFLOAD)


def space_of(job: Job) -> Space:
    return Space(
        tuple(Axis(path, values) for path, values in AXES.items() if job.model.is_moe or path != "plan.parallel.ep")
    )


def answered(number: int, name: str, proposal: Proposal) -> Trial:
    """Seconds that no model has a part in, and every third plan too large."""
    seconds = 1 + number * 7 % 10 / 10
    fits = number % 3 < 2
    outcome = Outcome(status="ok", step_time=seconds) if fits else Outcome(status="infeasible")
    values = (seconds,) if fits else ()
    return Trial(number=number, proposer=name, reason=proposal.reason, changes=proposal.changes, outcome=outcome,
                 values=values)  # fmt: skip


def first_proposals(name: str, ground: Ground) -> list[str]:
    """The reason of each, and what the plan gives up."""
    proposer, found, waiting = PROPOSERS[name](ground), list[str](), list[Proposal]()
    told = 0
    while len(found) < FIRST:
        while (proposal := proposer.ask()) is not None:
            given_up = " ".join(shown(proposal.changes[path]) for path in GIVEN_UP if path in proposal.changes)
            found.append(f"{proposal.reason} | {given_up}")
            waiting.append(proposal)
        for answer in waiting:
            proposer.tell(answered(told, name, answer), own=True)
            told += 1
        waiting.clear()
    return found[:FIRST]


@pytest.mark.parametrize("name", ["seed", "local"])
@pytest.mark.parametrize("place", JOBS)
def test_what_is_tried_first(place: str, name: str) -> None:
    job = load_job(BASE, set=JOBS[place])
    found = first_proposals(name, Ground(job=job, space=space_of(job), rates=rates()))
    assert found == json.loads(KEPT.read_text())[f"{place}/{name}"]
