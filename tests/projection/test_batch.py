"""The contract of batch: memory and exact times as ``project`` gives them, a bound that is one, a close estimate."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

from windtunnel.errors import LegalityError
from windtunnel.job import Job
from windtunnel.projection.batch import Batch
from windtunnel.projection.options import as_columns, as_rows
from windtunnel.projection.project import project
from windtunnel.search.inner import choices_of, kernels_of, recomputes_of
from windtunnel.search.space import default_space

MakeJob = Callable[[dict[str, Any]], Job]
PROJECTED, PLANS = 1_000, 10_000
SCHEDULES = (
    "gpipe", "1f1b", "interleaved_1f1b", "looped_bfs", "1f1b_ep_overlap", "zb_h1", "zb_heuristic", "interleaved_zb",
    "zbv", "v_half", "v_min", "dualpipe", "dualpipe_v",
)  # fmt: skip
FRAMEWORKS = (
    {"framework": "megatron-core", "date": "2025-06"},
    {"framework": "torchtitan", "date": "2025-06"},
    {"framework": "deepspeed"},
    {"framework": "maxtext"},
)


def random_changes(generator: random.Random) -> dict[str, Any]:
    pick = generator.choice
    model = pick(["llama3.1-8b", "llama3.1-70b", "qwen3-30b-a3b", "deepseek-v2-lite"])
    moe = model in ("qwen3-30b-a3b", "deepseek-v2-lite")
    tp, pp, cp = pick([1, 2, 4]), pick([1, 2, 4]), pick([1, 1, 2])
    changes: dict[str, Any] = {
        "model": model,
        "software": pick(FRAMEWORKS),
        "cluster.num_accelerators": pick([16, 32, 64]),
        "plan.parallel": {"tp": tp, "pp": pp, "cp": cp, "ep": pick([1, 4, 8]) if moe else 1, "etp": 1},
        "plan.batch": {
            "micro_batch_size": pick([1, 2]),
            "global_batch_size": pick([64, 128]),
            "sequence_length": pick([2048, 8192]),
        },
        "plan.sharding": {"strategy": pick(["ddp", "zero1", "zero2", "fsdp"])},
    }
    if pp > 1:
        changes["plan.pipeline"] = {"schedule": pick(SCHEDULES), "virtual_stages": pick([1, 2])}
    return changes


def batches(make_job: MakeJob, seed: int) -> Iterator[Batch]:
    """Random grid points with every variant and choice of the default space of their framework."""
    generator = random.Random(seed)
    while True:
        try:
            job = make_job(random_changes(generator))
        except LegalityError:
            continue
        inner = default_space(job).inner
        recomputes, kernels = recomputes_of(job, inner), kernels_of(job, inner)
        pairs = list(product(range(len(recomputes)), range(len(kernels))))
        rows = as_rows(recomputes, kernels, pairs)
        yield Batch(job, rows, as_columns(choices_of(job, inner)))


def test_batch_equals_project_on_random_plans(make_job: MakeJob) -> None:
    generator, compared, each = random.Random(3), 0, 25
    for batch in batches(make_job, seed=20261130):
        peak = batch.peak_device()
        times = batch.times(np.arange(len(batch.rows)))
        for _ in range(each):
            row, column = generator.randrange(peak.shape[0]), generator.randrange(peak.shape[1])
            answer = project(batch.plan(row, column))
            assert peak[row, column] == pytest.approx(max(s.device for s in answer.memory.stages), rel=1e-9)
            assert batch.exact(row)[column] == pytest.approx(answer.step_time, rel=1e-9)
            assert times.bound[row, column] <= answer.step_time * (1 + 1e-9)
        compared += each
        if compared >= PROJECTED:
            return


@pytest.mark.parametrize("moments", ["fp32", "bf16"])
@pytest.mark.parametrize("strategy", ["ddp", "zero1"])
def test_batch_equals_project_where_an_optimizer_step_copies(make_job: MakeJob, strategy: str, moments: str) -> None:
    """Gradients of 16 bits beside fp32 moments, and moments of 16 bits, are widened for the step."""
    generator = random.Random(11)
    job = make_job({
        "model": "deepseek-v2-lite",
        "software": {"framework": "megatron-bridge", "date": "2026-08"},
        "cluster.num_accelerators": 32,
        "plan.parallel": {"tp": 1, "pp": 1, "cp": 1, "ep": 8, "etp": 1},
        "plan.batch": {"micro_batch_size": 1, "global_batch_size": 64, "sequence_length": 4096},
        "plan.sharding": {"strategy": strategy},
        "plan.precision": {"grads": "bf16", "optimizer_state": moments},
    })  # fmt: skip
    inner = default_space(job).inner
    recomputes, kernels = recomputes_of(job, inner), kernels_of(job, inner)
    rows = as_rows(recomputes, kernels, list(product(range(len(recomputes)), range(len(kernels)))))
    batch = Batch(job, rows, as_columns(choices_of(job, inner)))
    peak = batch.peak_device()
    peaks: set[str] = set()
    for _ in range(25):
        row, column = generator.randrange(peak.shape[0]), generator.randrange(peak.shape[1])
        stages = project(batch.plan(row, column)).memory.stages
        assert peak[row, column] == pytest.approx(max(stage.device for stage in stages), rel=1e-9)
        peaks.update(stage.moment for stage in stages)
    assert "optimizer" in peaks


def test_the_bound_is_one_and_the_estimate_is_close_on_random_plans(make_job: MakeJob) -> None:
    """Median error at most 0.5 %, 99th percentile at most 3 %, over every schedule."""
    errors: dict[str, list[float]] = {}
    for batch in batches(make_job, seed=7):
        rows = np.arange(len(batch.rows))[:: max(1, len(batch.rows) // 5)]
        times = batch.times(rows)
        exact = np.stack([batch.exact(int(row)) for row in rows])
        assert (times.bound <= exact * (1 + 1e-9)).all()
        name = batch.job.plan.pipeline.schedule
        errors.setdefault(name, []).extend(np.abs(times.estimate / exact - 1).ravel())
        if sum(map(len, errors.values())) >= PLANS and len(errors) == len(SCHEDULES):
            break
    pooled = np.concatenate([np.array(found) for found in errors.values()])
    assert np.median(pooled) <= 0.005
    assert np.quantile(pooled, 0.99) <= 0.03
