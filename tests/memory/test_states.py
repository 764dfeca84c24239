"""Bytes per parameter of the static state, in closed form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from windtunnel.catalog.jobs import job_from_mapping
from windtunnel.job import Job
from windtunnel.memory.states import byte_rates, shard_sizes, states
from windtunnel.memory.structure import structures
from windtunnel.memory.weights import weight_bytes
from windtunnel.projection.memory import project_memory

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


@pytest.mark.parametrize(("date", "master"), [("2025-03", 4), ("2025-06", 2)])
def test_bf16_gradients_and_moments(make_job: MakeJob, date: str, master: int) -> None:
    """4 + 8/n with a full fp32 master; 4 + 6/n where bf16 weights and 16-bit remainders make it up."""
    narrow = {"compute": "bf16", "grads": "bf16", "optimizer_state": "bf16"}
    job = make_job({"plan.precision": narrow, "software.date": date})
    assert per_parameter(job) == 4 + (master + 4) / 8


def test_remainders_need_bf16_weights_and_narrow_moments(make_job: MakeJob) -> None:
    """fp32 moments come with the optimizer that keeps a whole master."""
    assert byte_rates(make_job({})).master == 4
    precision = {"compute": "bf16", "params": "fp16", "master": "fp32", "optimizer_state": "bf16"}
    assert byte_rates(make_job({"plan.precision": precision})).master == 4


def test_narrow_moments_are_widened_while_stepping(make_job: MakeJob) -> None:
    """Two fp32 copies of the larger parameter group: dense 60/10 against experts 40/2."""
    job = make_job({"plan.precision": {"compute": "bf16", "optimizer_state": "bf16"}})
    assert states(60.0, 40.0, 10, 2, byte_rates(job)).stepping == 2 * 4 * 20
    assert states(60.0, 4.0, 10, 2, byte_rates(job)).stepping == 2 * 4 * 6
    assert states(60.0, 40.0, 10, 2, byte_rates(make_job({}))).stepping == 0


def test_moments_that_the_kernel_reads_as_they_are_are_not_widened(make_job: MakeJob) -> None:
    """Transformer Engine 2.14, in release containers from 2026-04 on."""
    narrow = {"compute": "bf16", "grads": "bf16", "optimizer_state": "bf16"}
    before, after = (make_job({"plan.precision": narrow, "software.date": date}) for date in ("2026-03", "2026-04"))
    assert states(60.0, 40.0, 10, 2, byte_rates(before)).stepping == 2 * 4 * 20
    assert states(60.0, 40.0, 10, 2, byte_rates(after)).stepping == 0


@pytest.mark.parametrize(
    ("framework", "date", "precision", "master", "copied"),
    [
        ("megatron-core", "2026-06", {}, 4, 0),
        ("megatron-core", "2026-06", {"grads": "bf16"}, 4, 4),
        ("megatron-core", "2026-06", {"grads": "bf16", "optimizer_state": "bf16"}, 2, 0),
        ("megatron-core", "2026-06", {"compute": "fp8_tensorwise", "grads": "bf16", "optimizer_state": "bf16"}, 4, 4),
        ("megatron-bridge", "2025-08", {"grads": "bf16", "optimizer_state": "bf16"}, 2, 0),
        ("megatron-bridge", "2026-06", {"grads": "bf16", "optimizer_state": "bf16"}, 4, 4),
        ("megatron-bridge", "2026-06", {"compute": "fp8_delayed", "grads": "bf16", "optimizer_state": "bf16"}, 2, 0),
        ("nemo", "2024-12", {"grads": "bf16"}, 4, 4),
        ("deepspeed", "2025-06", {"grads": "bf16"}, 4, 4),
    ],
)
def test_an_fp32_master_is_stepped_with_fp32_gradients(
    make_job: MakeJob, framework: str, date: str, precision: dict[str, Any], master: int, copied: int
) -> None:
    """Unless a precision-aware optimizer is handed both, which then stores half of the master."""
    software = {"framework": framework, "date": date}
    job = make_job({"plan.precision": {"compute": "bf16"} | precision, "software": software})
    rates = byte_rates(job)
    assert (rates.master, rates.stepping_gradient) == (master, copied)


def moonlight(make_job: MakeJob, **software: str) -> Job:
    return make_job(
        {
            "model": "moonlight-16b-a3b",
            "cluster.num_accelerators": 8,
            "software": {"framework": "megatron-bridge", "date": "2026-08", **software},
            "plan.parallel": {"tp": 2, "ep": 8, "etp": 1},
        }
    )


def test_the_blocks_of_whole_experts_are_larger_than_their_states(make_job: MakeJob) -> None:
    """Two matrices of 22 and 11 MiB in fp32, 11 and 5.5 in bf16: those of 11 lie in blocks of 12."""
    rates = byte_rates(moonlight(make_job))
    pair = 3 * 2048 * 1408
    assert rates.master_rest * pair == 2**20
    assert rates.moments_rest * pair == 2 * 2**20
    assert rates.stepping_rest * pair == 2**20
    whole, divided = (states(0.0, pair, 1, n, rates) for n in (1, 2))
    assert whole.master - rates.master * pair == 2**20
    assert divided.master == rates.master * pair / 2
    expandable = byte_rates(moonlight(make_job, allocator="expandable_segments"))
    assert (expandable.master_rest, expandable.moments_rest, expandable.stepping_rest) == (0, 0, 0)


def test_mem_foreach_adam_peak_torchtune_389(make_job: MakeJob) -> None:
    """github.com/meta-pytorch/torchtune/pull/389: foreach AdamW steps with one more copy of the parameters; 54 GB
    without it are four times 13.5, and 8-bit moments bring 40.5."""
    pure = {"compute": "bf16", "params": "bf16", "grads": "bf16", "master": "none", "optimizer_state": "bf16"}
    single = {
        "model": "llama2-7b",
        "cluster": {"accelerator": "a100-sxm-80gb", "num_accelerators": 1},
        "software": {"framework": "pytorch-fsdp", "date": "2024-02"},
        "plan.sharding.strategy": "ddp",
        "plan.batch": {"micro_batch_size": 1, "global_batch_size": 1, "sequence_length": 512},
        "plan.precision": pure,
        "plan.recompute": {"policy": "full"},
    }
    parameters = 6.738e9
    plain = project_memory(make_job({**single, "plan.optimizer": "sgd"})).peak
    adam = project_memory(make_job(single)).peak
    eight = project_memory(make_job({**single, "plan.optimizer": "adam8bit"})).peak
    assert adam.moment == "optimizer"
    assert plain.weights + plain.gradients == pytest.approx(4 * parameters, rel=0.001)
    held = adam.weights + adam.gradients + adam.moments
    assert held == pytest.approx(54e9, rel=0.01)
    assert adam.allocated - held == pytest.approx(2 * parameters, rel=0.15)
    assert eight.weights + eight.gradients + eight.moments == pytest.approx(40.5e9, rel=0.01)


def test_mem_8bit_adam_fsdp_upcast_1902(make_job: MakeJob) -> None:
    """github.com/huggingface/accelerate/issues/1902: 2 bytes a parameter, and a scale per block, not 8."""
    job = make_job({"plan.optimizer": "adam8bit", "plan.sharding.strategy": "ddp"})
    assert byte_rates(job).moments == pytest.approx(2, rel=0.02)
    assert byte_rates(make_job({})).moments == 8


def test_est_ds_zero_estimator_5099(make_job: MakeJob) -> None:
    """github.com/deepspeedai/DeepSpeed/pull/5099: ZeRO-2 holds 2 bytes of weights and shards the other 14."""
    job = make_job({"software": {"framework": "deepspeed", "date": "2024-02"}, "plan.sharding.strategy": "zero2"})
    assert per_parameter(job) == 2 + 14 / 8


def test_est_moe_divisor_bridge_3744(make_job: MakeJob) -> None:
    """github.com/NVIDIA-NeMo/Megatron-Bridge/pull/3744: routed experts divide by etp · ep, their optimizer state by
    accelerators / (pp · ep · etp)."""
    job = make_job(
        {
            "model": "mixtral-8x7b",
            "cluster.num_accelerators": 64,
            "plan.parallel": {"tp": 4, "pp": 2, "ep": 4, "etp": 1},
            "plan.pipeline": {"schedule": "1f1b"},
        }
    )
    expert = 3 * 4096 * 14336 * 8 * 16
    assert structures(job)[0].parameters.expert == expert / 4
    assert shard_sizes(job)[1] == 64 // (2 * 4 * 1)


def test_oom_muon_embedding_layerwise_2163(make_job: MakeJob) -> None:
    """github.com/NVIDIA/Megatron-LM/issues/2163: a shard of whole tensors holds the embedding at least."""
    cluster = {"accelerator": "h100-sxm-80gb", "num_accelerators": 512}
    batch = {"micro_batch_size": 1, "global_batch_size": 512, "sequence_length": 4096}
    changes = {"cluster": cluster, "plan.batch": batch, "plan.optimizer": "muon", "software.date": "2025-11"}
    muon = project_memory(make_job(changes)).peak
    adam = project_memory(make_job({**changes, "plan.optimizer": "adamw"})).peak
    embedding = 128256 * 4096
    assert muon.moments == 4 * embedding
    assert adam.moments == pytest.approx(8 * 8.03e9 / 512, rel=0.01)


@pytest.mark.parametrize(
    ("accelerator", "compute", "params", "expected"),
    [
        ("h100-sxm-80gb", "fp8_delayed", "bf16", 4),
        ("h100-sxm-80gb", "fp8_tensorwise", "fp8", 2),
        ("b200-180gb", "fp8_tensorwise", "fp8", 1),
        ("b200-180gb", "mxfp8", "fp8", 2 + 2 / 32),
        ("b200-180gb", "nvfp4", "fp8", 1 + 2 / 16),
    ],
)
def test_fp8_memory_te_rules(make_job: MakeJob, accelerator: str, compute: str, params: str, expected: float) -> None:
    """github.com/NVIDIA/TransformerEngine/issues/1261: bytes of a weight that is multiplied, by part and recipe."""
    job = make_job(
        {
            "cluster.accelerator": accelerator,
            "plan.precision": {"compute": compute, "params": params},
            "software.date": "2026-01",
        }
    )
    ends = 2 * 128256 * 4096 / 8030261248
    assert weight_bytes(job) == pytest.approx(expected * (1 - ends) + 2 * ends)


def test_recipes_store_fp8_weights_alone(make_job: MakeJob) -> None:
    mxfp8 = {"plan.precision": {"compute": "mxfp8"}, "cluster.accelerator": "b200-180gb"}
    assert weight_bytes(make_job({**mxfp8, "software": {"framework": "megatron-bridge", "date": "2026-01"}})) < 2.1
    torchtitan = {"software": {"framework": "torchtitan", "date": "2026-01"}, "plan.sharding.strategy": "fsdp"}
    assert weight_bytes(make_job({**mxfp8, **torchtitan})) == 4


def test_oom_ckpt_host_radixark_61() -> None:
    """github.com/radixark/Megatron-LM/pull/61: a synchronous save of 744B stages fp32 master, moments and weights,
    650 GB on each of 16 nodes of 4."""
    job = job_from_mapping(
        {
            "model": "glm-5",
            "cluster": {"accelerator": "gb300-288gb", "num_accelerators": 64, "accelerators_per_node": 4},
            "software": {"framework": "megatron-core", "date": "2026-07"},
            "plan": {
                "parallel": {"tp": 8, "pp": 4, "ep": 16, "etp": 1},
                "pipeline": {"schedule": "1f1b", "layers_per_stage": [19, 20, 20, 19]},
                "sharding": {"strategy": "zero1"},
                "batch": {"micro_batch_size": 1, "global_batch_size": 64, "sequence_length": 4096},
            },
        }
    )
    assert 4 * project_memory(job).host_checkpoint == pytest.approx(650e9, rel=0.1)


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


@pytest.mark.parametrize(
    ("optimizer", "moments"), [("adamw", 8), ("adam8bit", 2 + 8 / 256), ("muon", 4), ("sgd", 4), ("adafactor", 0)]
)
def test_moments_by_optimizer(make_job: MakeJob, optimizer: str, moments: float) -> None:
    job = make_job({"plan.optimizer": optimizer, "plan.sharding.strategy": "ddp"})
    assert states(1.0, 0.0, 1, 1, byte_rates(job)).moments == moments


def test_an_offloaded_optimizer_leaves_the_device(make_job: MakeJob) -> None:
    job = make_job({"plan.offload": {"optimizer": "cpu"}})
    held = states(1.0, 0.0, *shard_sizes(job), byte_rates(job))
    assert (held.master, held.moments) == (0, 0)
