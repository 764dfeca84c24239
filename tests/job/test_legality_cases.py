"""Real users' trouble, each with the answer read in the framework's code. The id names the case; the URL its source."""

from __future__ import annotations

from typing import Any

import pytest

from windtunnel.catalog.jobs import load_draft
from windtunnel.catalog.models import find_model
from windtunnel.job.draft import Draft
from windtunnel.job.legality import grids, minimum_accelerators, violations


def draft(
    world: int,
    parallel: dict[str, Any],
    *,
    model: Any = "llama3.1-8b",
    framework: str = "megatron-core",
    batch: dict[str, int] | None = None,
    software: dict[str, Any] | None = None,
    **plan: Any,
) -> Draft:
    size = {"micro_batch_size": 1, "global_batch_size": world * 32, "sequence_length": 8192, **(batch or {})}
    cluster = {"accelerator": "h100-sxm-80gb", "num_accelerators": world}
    chosen = {"framework": framework, "date": "2026-08", **(software or {})}
    return load_draft(
        {"model": model, "cluster": cluster, "software": chosen, "plan": {"parallel": parallel, "batch": size, **plan}}
    )


def broken(job: Draft) -> set[str]:
    return {violation.rule for violation in violations(job) if violation.severity == "error"}


def test_etp_default_bridge_546() -> None:
    """github.com/NVIDIA-NeMo/Megatron-Bridge/issues/546: etp is tp when unset, and the pair is legal with etp 1."""
    given = {"tp": 4, "pp": 1, "cp": 1, "ep": 4}
    unset = draft(4, given, model="qwen3-30b-a3b", framework="megatron-bridge")
    assert grids(unset)["expert"]["size"] == 16
    assert "expert-grid" in broken(unset)
    assert broken(draft(4, {**given, "etp": 1}, model="qwen3-30b-a3b", framework="megatron-bridge")) == set()


@pytest.mark.parametrize("model", ["gpt-oss-20b", "gpt-oss-120b"])
def test_world4_ep2pp2_speech_14838(model: str) -> None:
    """github.com/NVIDIA-NeMo/Speech/issues/14838: the grid named is 4; 24 virtual stages of pp 2 divide no gpt-oss."""
    job = draft(
        4, {"tp": 1, "pp": 2, "ep": 2, "etp": 1}, model=model, framework="nemo", pipeline={"virtual_stages": 24}
    )
    assert grids(job)["expert"]["size"] == 4
    assert broken(job) & {"layers-vpp", "stages-layers"}


def test_gpt3_175b_example_default_nodes() -> None:
    """NVIDIA/Megatron-LM@d98e8a64dd, train_gpt3_175b_distributed.sh: TP 8 × PP 16 on one node of 8."""
    small = draft(8, {"tp": 8, "pp": 16}, model="gpt3-175b")
    assert broken(small) == {"dense-grid"}
    assert minimum_accelerators(small) == 128
    batch = {"global_batch_size": 1536, "sequence_length": 2048}
    whole = draft(128, {"tp": 8, "pp": 16}, model="gpt3-175b", batch=batch)
    assert broken(whole) == set()
    assert whole.plan["parallel.dp"] == 1


@pytest.mark.parametrize(
    ("pp", "tp", "cp", "ep", "etp", "fewest"),
    [
        (1, 2, 1, 8, 1, 8),
        (1, 4, 1, 8, 1, 8),
        (1, 2, 2, 8, 1, 8),
        (1, 2, 4, 8, 1, 8),
        (2, 2, 1, 8, 1, 16),
        (1, 2, 1, 4, 2, 8),
        (1, 3, 1, 4, 1, 12),
        (8, 1, 32, 32, 1, 256),
        (8, 1, 64, 32, 1, 512),
    ],
)
def test_min_gpus_not_product(pp: int, tp: int, cp: int, ep: int, etp: int, fewest: int) -> None:
    """Megatron-Bridge@067f987df, skills: the grids overlap, so the minimum is pp · lcm(tp · cp, ep · etp)."""
    job = draft(8, {"tp": tp, "cp": cp, "pp": pp, "ep": ep, "etp": etp}, model="qwen3-30b-a3b")
    assert minimum_accelerators(job) == fewest


def test_layers_glm45air_pp4_msswift_5737() -> None:
    """github.com/modelscope/ms-swift/issues/5737: 46 layers do not split over pp 4."""
    parallel = {"tp": 8, "pp": 4, "cp": 1, "ep": 16, "etp": 1, "sequence_parallel": True}
    batch = {"micro_batch_size": 2, "global_batch_size": 16, "sequence_length": 4096}
    job = draft(64, parallel, model=_without_mtp("glm-4.5-air"), batch=batch)
    assert minimum_accelerators(job) == 64
    (layers,) = [violation for violation in violations(job) if violation.rule == "layers-pp"]
    changes = [dict(repair.changes) for repair in layers.repairs]
    assert {"plan.pipeline.count_embedding": True, "plan.pipeline.count_head": True} in changes
    assert {"plan.parallel.pp": 2} in changes
    assert {"plan.pipeline.first_stage_layers": 11, "plan.pipeline.last_stage_layers": 11} in changes


def _without_mtp(name: str) -> dict[str, Any]:
    return {"base": name, "num_mtp_layers": 0}


def test_layers_silent_drop_1304() -> None:
    """github.com/NVIDIA/Megatron-LM/issues/1304: 30 layers over pp 4 must be refused, never floored to 28."""
    job = draft(4, {"pp": 4}, model={"base": "llama3.1-8b", "num_layers": 30}, software={"date": "2024-11"})
    assert "layers-pp" in broken(job)
    assert job.layout is not None
    assert sum(len(chunk.layers) for chunk in job.layout) == 30


def test_uneven_first_last_deepseek_v3_pp16() -> None:
    """yanring/Megatron-MoE-ModelZoo@e865051: first 4, last 1, and (61-4-1)/14 = 4 in between."""
    job = draft(
        1024,
        {"tp": 1, "pp": 16, "ep": 64},
        model=_without_mtp("deepseek-v3"),
        pipeline={"first_stage_layers": 4, "last_stage_layers": 1},
    )
    assert broken(job) == set()
    assert job.layout is not None
    assert [len(chunk.layers) for chunk in job.layout] == [4] * 15 + [1]
    assert find_model("qwen3-235b-a22b").num_layers == 94
    counted = draft(
        256,
        {"pp": 8, "ep": 32},
        model="qwen3-235b-a22b",
        pipeline={"virtual_stages": 4, "count_embedding": True, "count_head": True},
    )
    assert broken(counted) == set()
    assert counted.layout is not None
    assert [len(chunk.layers) for chunk in counted.layout] == [2] + [3] * 30 + [2]


@pytest.mark.parametrize(("m", "group", "legal"), [(6, None, False), (8, None, True), (3, None, False), (14, 8, True)])
def test_interleaved_needs_m_multiple_of_pp(m: int, group: int | None, legal: bool) -> None:
    """Megatron-LM@d98e8a64dd, schedules.py: PP <= N <= M, and M % N is 0 or at least PP."""
    pipeline: dict[str, Any] = {"virtual_stages": 2}
    if group:
        pipeline["microbatch_group_size"] = group
    job = draft(4, {"pp": 4}, batch={"global_batch_size": m}, pipeline=pipeline)
    assert ("interleaved-m" not in broken(job)) == legal


def test_interleaved_groups_are_younger_than_the_schedule() -> None:
    pipeline = {"virtual_stages": 2, "microbatch_group_size": 8}
    old = draft(4, {"pp": 4}, batch={"global_batch_size": 14}, pipeline=pipeline, software={"date": "2023-10"})
    assert "interleaved-m" in broken(old)


def test_torchtitan_microbatches_lt_stages_775() -> None:
    """github.com/pytorch/torchtitan/issues/775: fewer micro-batches than stages hang or are refused."""
    few = draft(8, {"pp": 8}, framework="torchtitan", batch={"micro_batch_size": 2, "global_batch_size": 8})
    (found,) = [violation for violation in violations(few) if violation.rule == "microbatches-stages"]
    assert found.values["num_microbatches"] == 4
    assert {"plan.batch.micro_batch_size": 1} in [dict(repair.changes) for repair in found.repairs]
    enough = draft(8, {"pp": 8}, framework="torchtitan", batch={"global_batch_size": 8})
    assert broken(enough) == set()


def test_kv_heads_tp_torchtitan_2574() -> None:
    """github.com/pytorch/torchtitan/issues/2574: 2 key-value heads at tp 4; Megatron-core replicates, torch cannot."""
    assert find_model("qwen3.5-35b-a3b").num_key_value_heads == 2
    torch = draft(4, {"tp": 4}, model="qwen3.5-35b-a3b", framework="torchtitan")
    assert "gqa-tp" in broken(torch)
    megatron = draft(4, {"tp": 4, "etp": 1}, model="qwen3.5-35b-a3b")
    assert "gqa-tp" not in broken(megatron)


def test_sp_required_moe_tp_1587() -> None:
    """github.com/NVIDIA/Megatron-LM/issues/1587: experts with tp > 1 need sequence parallelism, dense models do not."""
    parallel = {"tp": 2, "ep": 8, "etp": 1, "sequence_parallel": False}
    assert broken(draft(8, parallel, model="qwen3-30b-a3b")) == {"moe-sp"}
    assert broken(draft(8, {"tp": 2, "sequence_parallel": False})) == set()


@pytest.mark.parametrize(("length", "cp", "tp", "legal"), [(8192, 8, 4, True), (1004, 2, 4, False), (24, 3, 4, True)])
def test_seqlen_multiple_cp_tp_rl_3563(length: int, cp: int, tp: int, legal: bool) -> None:
    """github.com/NVIDIA-NeMo/RL/pull/3563: S % (CP · lcm(2, TP)) with context and sequence parallelism."""
    job = draft(96, {"cp": cp, "tp": tp}, batch={"sequence_length": length})
    assert ("sequence-length" not in broken(job)) == legal


@pytest.mark.parametrize(
    "change",
    [
        {"parallel": {"ep": 8, "etp": 1}},
        {"sharding": {"strategy": "zero1", "implementation": "fsdp2"}},
        {"model": {"base": "qwen3-30b-a3b", "tie_word_embeddings": True}},
        {"precision": {"compute": "fp16"}},
    ],
)
def test_fsdp2_flags_megatron(change: dict[str, Any]) -> None:
    """Megatron-LM@d98e8a64dd, arguments.py:1031: what --use-torch-fsdp2 excludes."""
    sharding = {"strategy": "fsdp", "implementation": "fsdp2"}
    plain = {"parallel": {}, "sharding": sharding, "model": "qwen3-30b-a3b"}
    assert broken(draft(8, **plain)) == set()  # type: ignore[arg-type]
    assert broken(draft(8, **{**plain, **change})) == {"fsdp2"}  # type: ignore[arg-type]


def test_cpu_offload_pp() -> None:
    """Megatron-Bridge@067f987df, skills: activation offload needs pp 1 and no recompute; optimizer offload does not."""
    both: dict[str, Any] = {"model": "llama3.1-70b", "recompute": {"policy": "selective"}}
    assert broken(draft(16, {"tp": 4, "pp": 4}, offload={"activations": 0.5}, **both)) == {"act-offload"}
    optimizer = {"offload": {"optimizer": "cpu"}, "sharding": {"strategy": "zero1"}}
    assert broken(draft(16, {"tp": 4, "pp": 4}, **optimizer, **both)) == set()
