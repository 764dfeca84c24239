"""What makes a job fit: enough, minimal, and priced as the projection prices it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from windtunnel.catalog.jobs import load_job
from windtunnel.errors import WindtunnelError
from windtunnel.job import Job
from windtunnel.projection.project import project
from windtunnel.search.fit import Remedy, fit

LARGE: dict[str, Any] = {
    "model": "llama3.1-70b",
    "cluster": {"accelerator": "h100-sxm-80gb", "num_accelerators": 64},
    "software": {"framework": "megatron-core", "date": "2025-06"},
    "plan": {
        "parallel": {"tp": 4, "pp": 4},
        "pipeline": {"schedule": "1f1b"},
        "batch": {"micro_batch_size": 2, "global_batch_size": 128, "sequence_length": 4096},
        "sharding": {"strategy": "zero1"},
    },
}


def varying(mapping: Mapping[str, Any]) -> Callable[[Mapping[str, object]], Job]:
    return lambda changes: load_job(mapping, set=dict(changes))


def answer(mapping: Mapping[str, Any]) -> tuple[Remedy, ...]:
    return fit(project(load_job(mapping)), varying(mapping))


def fits(mapping: Mapping[str, Any], changes: Mapping[str, object]) -> bool:
    """Whether the changed job is legal and fits."""
    try:
        return project(varying(mapping)(changes)).memory.verdict == "fits"
    except WindtunnelError:
        return False


@pytest.fixture(scope="module")
def large() -> tuple[Remedy, ...]:
    return answer(LARGE)


def test_the_job_does_not_fit_and_every_remedy_makes_it(large: tuple[Remedy, ...]) -> None:
    assert project(load_job(LARGE)).memory.verdict == "oom"
    assert len(large) >= 4
    for item in large:
        assert project(varying(LARGE)(item.changes)).memory.verdict == "fits", item.changes


def test_prices_are_those_of_the_projections(large: tuple[Remedy, ...]) -> None:
    now = project(load_job(LARGE))
    for item in large:
        then = project(varying(LARGE)(item.changes))
        each = then.tokens_per_second_per_accelerator / now.tokens_per_second_per_accelerator
        assert item.price == pytest.approx(1 - each)
        assert (item.step_time, item.peak_device) == (then.step_time, then.memory.peak.device)


def test_the_cheapest_comes_first_and_accelerators_last(large: tuple[Remedy, ...]) -> None:
    plans = [item.price for item in large if "cluster.num_accelerators" not in item.changes]
    assert plans == sorted(plans)
    kinds = ["cluster.num_accelerators" in item.changes for item in large]
    assert kinds == sorted(kinds)


def test_kinds_of_remedies(large: tuple[Remedy, ...]) -> None:
    paths = {path for item in large for path in item.changes}
    assert {"plan.batch.micro_batch_size", "plan.recompute"} <= paths


def test_a_job_that_fits_needs_nothing() -> None:
    mapping = {**LARGE, "plan": {**LARGE["plan"], "recompute": {"policy": "full"}}}
    assert project(load_job(mapping)).memory.verdict == "fits"
    assert answer(mapping) == ()


def test_several_changes_where_no_single_one_is_enough() -> None:
    """None of a set can be spared."""
    mapping = {**LARGE, "cluster": {"accelerator": "h100-sxm-80gb", "num_accelerators": 16}}
    plan = {**LARGE["plan"], "parallel": {"tp": 4, "pp": 4}, "sharding": {"strategy": "ddp"}}
    plan["batch"] = {"micro_batch_size": 4, "global_batch_size": 128, "sequence_length": 16384}
    mapping = {**mapping, "plan": plan}
    found = answer(mapping)
    several = [item for item in found if len(item.changes) > 1]
    assert several
    for item in several[:2]:
        for path in item.changes:
            rest = {key: value for key, value in item.changes.items() if key != path}
            assert not fits(mapping, rest)


@pytest.mark.parametrize("accelerators", [1, 2])
def test_oom_llama2_70b_one_gpu_783(accelerators: int) -> None:
    """github.com/NVIDIA/Megatron-LM/issues/783: 1.24 TB of state; the answer is more accelerators, not tp 2."""
    mapping = {
        "model": "llama2-70b",
        "cluster": {"accelerator": "h100-sxm-80gb", "num_accelerators": accelerators},
        "plan": {
            "parallel": {"tp": accelerators},
            "batch": {"micro_batch_size": 1, "global_batch_size": 64, "sequence_length": 4096},
        },
    }
    job = load_job(mapping)
    peak = project(job).memory.peak
    state = (peak.weights + peak.gradients + peak.master + peak.moments) * accelerators
    assert state == pytest.approx(18 * 69e9, rel=0.01)
    found = answer(mapping)
    assert found
    assert all(item.changes["cluster.num_accelerators"] >= 8 for item in found)


def test_the_allocator_is_a_remedy_of_its_own() -> None:
    """A plan whose tensors leave too little for an allocator's waste: expandable segments cost nothing."""
    from dataclasses import replace

    job = load_job({**LARGE, "plan": {**LARGE["plan"], "recompute": {"policy": "full"}}})
    peak = project(job).memory.peak
    tight = replace(job.cluster.accelerator, hbm_capacity=(peak.allocated + peak.overhead) * 1.02)

    def vary(changes: Mapping[str, object]) -> Job:
        changed = load_job({**LARGE, "plan": {**LARGE["plan"], "recompute": {"policy": "full"}}}, set=dict(changes))
        return replace(changed, cluster=replace(changed.cluster, accelerator=tight))

    first = fit(project(vary({})), vary)[0]
    assert any(item.changes == {"software.allocator": "expandable_segments"} for item in fit(project(vary({})), vary))
    assert first.price <= 0
