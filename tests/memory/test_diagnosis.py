"""Which class of bytes exceeded the plan, and what was being allocated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from windtunnel.catalog.jobs import job_from_mapping
from windtunnel.job import Job
from windtunnel.memory.diagnosis import FRAGMENTS, GRAPHS, OTHERS, OUTSIDE, TENSORS, diagnose, matches
from windtunnel.memory.message import OutOfMemory, read_message
from windtunnel.projection.memory import project_memory

MakeJob = Callable[[dict[str, Any]], Job]
GIB, MIB = 2**30, 2**20

GPT2 = {
    "model": {
        "name": "gpt2-large", "num_layers": 36, "hidden_size": 1280, "num_attention_heads": 20,
        "intermediate_size": 5120, "vocab_size": 50257, "position": "learned", "activation": "gelu",
        "norm": "layernorm", "tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True,
    },
    "cluster": {"accelerator": "v100-sxm2-32gb", "num_accelerators": 1},
    "software": {"framework": "megatron-core", "date": "2023-09", "attention": "unfused"},
    "plan": {
        "batch": {"micro_batch_size": 4, "global_batch_size": 8, "sequence_length": 1024},
        "precision": {"compute": "fp16"},
        "dropout": {"hidden": 0.1, "attention": 0.1},
    },
}  # fmt: skip


def test_est_gpt2_774m_v100_525() -> None:
    """github.com/NVIDIA/Megatron-LM/issues/525: 774M on a V100; the request is one fp32 copy of the logits."""
    message = (
        "CUDA out of memory. Tried to allocate 786.00 MiB (GPU 0; 31.74 GiB total capacity; 28.82 GiB already "
        "allocated; 577.12 MiB free; 29.97 GiB reserved in total by PyTorch)"
    )
    job = job_from_mapping(GPT2)
    memory = project_memory(job)
    found = diagnose(job, read_message(message), memory.peak)
    assert memory.verdict == "oom"
    assert 786 * MIB == 4 * 1024 * 50304 * 4
    assert found.requested[0] == "fp32 logits of a micro-batch"
    assert found.hopeless
    assert found.exceeded == "activations"


@pytest.mark.parametrize(
    ("changes", "exceeded"),
    [
        ({"allocated": 60 * GIB, "reserved": 61 * GIB, "in_use": 62.4 * GIB}, TENSORS),
        ({"allocated": 30 * GIB, "reserved": 60 * GIB, "in_use": 61 * GIB}, FRAGMENTS),
        ({"allocated": 30 * GIB, "reserved": 31 * GIB, "in_use": 60 * GIB}, OUTSIDE),
        ({"allocated": 30 * GIB, "reserved": 31 * GIB, "in_use": 32 * GIB, "free": 2 * GIB}, OTHERS),
        ({"allocated": 20 * GIB, "reserved": 20.1 * GIB, "in_use": 20.5 * GIB, "free": 58.6 * GIB}, None),
    ],
)
def test_the_class_furthest_over_its_plan(make_job: MakeJob, changes: dict[str, float], exceeded: str | None) -> None:
    job = make_job({"plan.parallel": {"tp": 2, "pp": 1}})
    peak = project_memory(job).peak
    assert 31 * GIB < peak.allocated < 59 * GIB
    error = OutOfMemory(requested=0.5 * GIB, capacity=79.1 * GIB)
    error = replace(error, free=79.1 * GIB - changes["in_use"])
    found = diagnose(job, replace(error, **changes), peak)
    assert found.exceeded == exceeded


def test_differences_are_those_of_message_and_plan(make_job: MakeJob) -> None:
    job = make_job({"plan.parallel": {"tp": 2, "pp": 1}})
    peak = project_memory(job).peak
    error = OutOfMemory(requested=GIB, capacity=79 * GIB, free=0.0, allocated=50 * GIB, reserved=52 * GIB)
    classes = {item.name: item for item in diagnose(job, error, peak).classes}
    assert classes[TENSORS].over == pytest.approx(51 * GIB - peak.allocated)
    assert classes[FRAGMENTS].over == pytest.approx(2 * GIB - (peak.reserved - peak.allocated))
    assert classes[OUTSIDE].found == pytest.approx(27 * GIB)


def test_pools_of_graphs_are_a_class_of_their_own(make_job: MakeJob) -> None:
    job = make_job({"plan.parallel": {"tp": 2, "pp": 1}})
    peak = project_memory(job).peak
    error = OutOfMemory(requested=GIB, capacity=79 * GIB, allocated=70 * GIB, reserved=71 * GIB, pools=30 * GIB)
    found = diagnose(job, error, peak)
    classes = {item.name: item for item in found.classes}
    assert (classes[GRAPHS].planned, classes[GRAPHS].found) == (0.0, 30 * GIB)
    assert classes[TENSORS].found == 41 * GIB
    assert found.exceeded == GRAPHS


def test_requests_are_recognised_by_their_size(make_job: MakeJob) -> None:
    job = make_job({})
    assert "bf16 embedding matrix or its gradient" in matches(job, 128256 * 4096 * 2)
    assert "up of a layer" in matches(job, 4096 * 2 * 14336 * 2)
    assert matches(job, 3.3 * MIB) == ()


def test_oom_llama33_70b_h200_recipe_on_h100() -> None:
    """github.com/NVIDIA-NeMo/Automodel/pull/2673: tuned on H200, started on H100; it asked for the head's gradient."""
    job = {
        "model": "llama3.1-70b",
        "cluster": {"accelerator": "h100-sxm-80gb", "num_accelerators": 32},
        "software": {"framework": "automodel", "date": "2026-06"},
        "plan": {
            "parallel": {"pp": 8},
            "pipeline": {"schedule": "1f1b"},
            "batch": {"micro_batch_size": 4, "global_batch_size": 128, "sequence_length": 1024},
            "sharding": {"strategy": "fsdp"},
            "precision": {
                "compute": "bf16", "params": "bf16", "grads": "bf16", "optimizer_state": "bf16", "master": "none",
            },
        },
    }  # fmt: skip
    small = job_from_mapping(job)
    large = job_from_mapping({**job, "cluster": {"accelerator": "h200-sxm-141gb", "num_accelerators": 32}})
    peak = project_memory(small).peak
    assert project_memory(small).verdict == "oom"
    assert project_memory(large).verdict != "oom"
    assert (peak.weights + peak.gradients + peak.moments) / 1e9 == pytest.approx(17.5, rel=0.1)
    assert any("head" in name for name in matches(small, 1.96 * GIB))
