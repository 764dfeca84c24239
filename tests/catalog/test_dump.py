"""The effective job written out is the same job when it is read again."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from windtunnel.catalog.dump import job_to_mapping
from windtunnel.catalog.hardware import accelerator_names
from windtunnel.catalog.jobs import load_job
from windtunnel.catalog.models import model_names
from windtunnel.errors import LegalityError
from windtunnel.job.job import Job

BATCH = {"micro_batch_size": 1, "global_batch_size": 4096, "sequence_length": 8192}


def mapping(
    model: Any = "llama3.1-8b", accelerator: Any = "h100-sxm-80gb", world: int = 64, **plan: Any
) -> dict[str, Any]:
    cluster = {"accelerator": accelerator, "num_accelerators": world}
    return {"model": model, "cluster": cluster, "plan": {"batch": BATCH, **plan}}


def again(job: Job) -> Job:
    return load_job(json.loads(json.dumps(job_to_mapping(job))))


def bare(job: Job) -> Job:
    return replace(job, origin=(), warnings=())


@pytest.mark.parametrize("model", model_names())
def test_every_catalog_model(model: str) -> None:
    job = load_job(mapping(model))
    assert bare(again(job)) == bare(job)


@pytest.mark.parametrize("accelerator", accelerator_names())
def test_every_catalog_accelerator(accelerator: str) -> None:
    job = load_job(mapping(accelerator=accelerator, precision={"compute": "fp16" if "v100" in accelerator else "bf16"}))
    assert bare(again(job)) == bare(job)
    assert job_to_mapping(job)["cluster"]["accelerator"] == accelerator


@pytest.mark.parametrize(
    "cluster",
    [
        {"power_cap": "500 W", "hbm_capacity": "70.3 GiB", "hbm_bandwidth": "3 TB/s", "price": 2.5},
        {"scale_up": {"bandwidth": "333 GB/s", "domain_size": 16}, "scale_out": {"kind": "roce", "latency": "7 us"}},
        {"accelerator": {"base": "h100-sxm-80gb", "name": "mine", "compute_units": 100}},
        {"accelerator": {"base": "mi355x", "peaks": {"bf16": "2 PFLOP/s"}}, "host": {"memory": "1 TiB"}},
    ],
)
def test_changed_clusters(cluster: dict[str, Any]) -> None:
    job = mapping()
    job["cluster"] |= cluster
    loaded = load_job(job)
    assert bare(again(loaded)) == bare(loaded)


def test_run_and_graph_scope_survive() -> None:
    job = {**mapping(), "run": {"tokens": 15e12, "checkpoint_interval": "30 min", "restart_time": "0 s"}}
    job["software"] = {"framework": "megatron-core", "cuda_graphs": "partial", "cuda_graph_scope": ["attn", "mlp"]}
    loaded = load_job(job)
    assert loaded.run.checkpoint_interval == 1800
    assert bare(again(loaded)) == bare(loaded)


RECOMPUTE = st.sampled_from([
    {"policy": "none"}, {"policy": "full"}, {"policy": "selective"}, {"policy": "per_op"},
    {"policy": "block", "num_layers": 1}, {"policy": "block", "layers": [0, 3]}, {"policy": "full", "num_layers": 0},
    {"policy": "modules", "modules": ["core_attn", "mlp"]},
])  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(
    tp=st.sampled_from([1, 2, 4, 8]), cp=st.sampled_from([1, 2]), pp=st.sampled_from([1, 2, 4, 8]),
    ep=st.sampled_from([1, 2, 8]), v=st.sampled_from([1, 2, 4]), recompute=RECOMPUTE,
    strategy=st.sampled_from(["ddp", "zero1", "fsdp", "hsdp"]),
    compute=st.sampled_from(["bf16", "fp16", "fp8_delayed", "fp8_blockwise"]),
    framework=st.sampled_from(["megatron-core", "torchtitan", "nanotron", "maxtext", "nemo", "primus"]),
    kind=st.sampled_from(["ring", "ulysses", "ring_ulysses", "all_gather"]), moe=st.booleans(),
    offload=st.sampled_from([0.0, 0.25, "full"]), order=st.sampled_from(["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"]),
)  # fmt: skip
def test_random_plans(
    tp: int, cp: int, pp: int, ep: int, v: int, recompute: dict[str, Any], strategy: str, compute: str, framework: str,
    kind: str, moe: bool, offload: Any, order: str,
) -> None:  # fmt: skip
    file = mapping(
        "qwen3-30b-a3b" if moe else "llama3.1-8b",
        world=128,
        parallel={"tp": tp, "cp": cp, "pp": pp, "ep": ep if moe else 1, "order": order},
        pipeline={"virtual_stages": v}, recompute=recompute, sharding={"strategy": strategy},
        precision={"compute": compute}, context_parallel={"kind": kind}, offload={"activations": offload},
    )  # fmt: skip
    file["software"] = {"framework": framework}
    try:
        job = load_job(file)
    except LegalityError:
        assume(False)
    assert bare(again(job)) == bare(job)
    assert not [entry for entry in again(job).origin if entry.level == "software"]
