"""Bytes per parameter of the static state, in closed form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from windtunnel.job import Job
from windtunnel.memory.states import byte_rates, shard_sizes, states

MakeJob = Callable[[dict[str, Any]], Job]


def per_parameter(job: Job) -> float:
    held = states(1.0, 0.0, *shard_sizes(job), byte_rates(job))
    return held.weights + held.gradients + held.master + held.moments + held.gathered


@pytest.mark.parametrize(("dp", "expected"), [(1, 18), (8, 7.5), (64, 6.1875)])
def test_est_bytes_per_param_654(make_job: MakeJob, dp: int, expected: float) -> None:
    """18 bytes replicated; 6 + 12/dp with the distributed optimizer."""
    strategy = "ddp" if dp == 1 else "zero1"
    job = make_job({"cluster.num_accelerators": dp, "plan.sharding.strategy": strategy})
    assert per_parameter(job) == expected


def test_bf16_gradients_and_moments_take_4_plus_8_over_n(make_job: MakeJob) -> None:
    job = make_job({"plan.precision": {"compute": "bf16", "grads": "bf16", "optimizer_state": "bf16"}})
    assert per_parameter(job) == 4 + 8 / 8


def test_torchtitan_shards_sixteen_bytes(make_job: MakeJob) -> None:
    job = make_job({"software": {"framework": "torchtitan", "date": "2025-06"}, "plan.sharding.strategy": "fsdp"})
    assert per_parameter(job) == 16 / 8


def test_a_smaller_shard_group_divides_by_itself(make_job: MakeJob) -> None:
    job = make_job({"plan.sharding": {"strategy": "zero1", "shard_size": 2}})
    assert per_parameter(job) == 6 + 12 / 2


def test_experts_shard_over_their_own_replicas(make_job: MakeJob) -> None:
    """EDP = accelerators / (pp · ep · etp)."""
    job = make_job(
        {
            "model": "mixtral-8x7b",
            "cluster.num_accelerators": 64,
            "plan.parallel": {"tp": 1, "pp": 2, "ep": 8},
            "plan.pipeline": {"schedule": "1f1b"},
        }
    )
    assert shard_sizes(job) == (32, 4)


@pytest.mark.parametrize(("optimizer", "moments"), [("adamw", 8), ("adam8bit", 2), ("muon", 4), ("sgd", 4)])
def test_moments_by_optimizer(make_job: MakeJob, optimizer: str, moments: float) -> None:
    job = make_job({"plan.optimizer": optimizer, "plan.sharding.strategy": "ddp"})
    assert states(1.0, 0.0, 1, 1, byte_rates(job)).moments == moments


def test_an_offloaded_optimizer_leaves_the_device(make_job: MakeJob) -> None:
    job = make_job({"plan.offload": {"optimizer": "cpu"}})
    held = states(1.0, 0.0, *shard_sizes(job), byte_rates(job))
    assert (held.master, held.moments) == (0, 0)
