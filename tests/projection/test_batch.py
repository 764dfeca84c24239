"""The contract of batch: memory as ``project`` gives it, a bound that is one."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from windtunnel.errors import LegalityError
from windtunnel.job import Job
from windtunnel.projection.batch import batch
from windtunnel.projection.project import project

MakeJob = Callable[[dict[str, Any]], Job]
WANTED = 200


def random_changes(generator: random.Random) -> dict[str, Any]:
    model = generator.choice(["llama3.1-8b", "llama3.1-70b", "qwen3-30b-a3b", "deepseek-v2-lite"])
    moe = model in ("qwen3-30b-a3b", "deepseek-v2-lite")
    tp, pp, cp = generator.choice([1, 2, 4]), generator.choice([1, 2, 4]), generator.choice([1, 1, 2])
    changes: dict[str, Any] = {
        "model": model,
        "cluster.num_accelerators": generator.choice([16, 32, 64]),
        "plan.parallel": {"tp": tp, "pp": pp, "cp": cp, "ep": generator.choice([1, 4, 8]) if moe else 1, "etp": 1},
        "plan.batch": {
            "micro_batch_size": generator.choice([1, 2]),
            "global_batch_size": generator.choice([64, 128]),
            "sequence_length": generator.choice([2048, 8192]),
        },
        "plan.sharding": {"strategy": generator.choice(["ddp", "zero1", "fsdp"])},
        "plan.recompute": {"policy": generator.choice(["none", "full", "selective"])},
        "plan.overlap": {"grad_reduce": generator.random() < 0.5, "p2p": generator.random() < 0.5},
    }
    if pp > 1:
        changes["plan.pipeline"] = {"virtual_stages": generator.choice([1, 2])}
    return changes


def random_jobs(make_job: MakeJob) -> list[Job]:
    generator = random.Random(20261130)
    jobs: list[Job] = []
    while len(jobs) < WANTED:
        try:
            jobs.append(make_job(random_changes(generator)))
        except LegalityError:
            continue
    return jobs


def test_batch_equals_project_on_random_legal_plans(make_job: MakeJob) -> None:
    jobs = random_jobs(make_job)
    scored = batch(jobs)
    alone = [project(job) for job in jobs]
    device = np.array([max(stage.device for stage in answer.memory.stages) for answer in alone])
    allocated = np.array([max(stage.allocated for stage in answer.memory.stages) for answer in alone])
    step_time = np.array([answer.step_time for answer in alone])
    assert scored.peak_device == pytest.approx(device, rel=1e-6)
    assert scored.peak_allocated == pytest.approx(allocated, rel=1e-6)
    assert (scored.step_time_bound <= step_time * (1 + 1e-9)).all()
    assert np.median(np.abs(scored.step_time_estimate / step_time - 1)) < 0.02
