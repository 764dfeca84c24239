"""What leaves the device: a share of everything kept, or the inputs of named modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from windtunnel.job import Job
from windtunnel.memory.kept import kept_chunk
from windtunnel.ops.chunk import lower_unit, units
from windtunnel.ops.layer import kept_bytes
from windtunnel.ops.offload import INPUT_OF, offloaded_bytes
from windtunnel.projection.memory import project_memory
from windtunnel.projection.project import project

MakeJob = Callable[[dict[str, Any]], Job]
MOE = {
    "model": "qwen3-30b-a3b",
    "cluster.num_accelerators": 16,
    "plan.parallel": {"ep": 16},
    "plan.moe": {"dispatcher": "hybridep"},
    "software.date": "2026-03",
}
TOKENS, ROWS, HIDDEN, WIDTH, LAYERS = 4096, 4096 * 8, 2048, 768, 48


def moved(make_job: MakeJob, *modules: str, **changes: Any) -> float:
    job = make_job({**MOE, **changes, "plan.offload": {"modules": list(modules)}})
    return kept_chunk(job, job.plan.pipeline.layout[0]).offloaded


@pytest.mark.parametrize(
    ("module", "elements"),
    [
        ("attn_norm", TOKENS * HIDDEN),
        ("qkv_linear", TOKENS * HIDDEN),
        ("core_attn", TOKENS * 128 * (32 + 2 * 4)),
        ("mlp_norm", TOKENS * HIDDEN),
        ("expert_fc1", ROWS * HIDDEN),
        ("moe_act", ROWS * 2 * WIDTH),
    ],
)
def test_a_module_gives_its_input(make_job: MakeJob, module: str, elements: int) -> None:
    assert moved(make_job, module) == pytest.approx(LAYERS * 2 * elements)


def test_the_input_of_the_output_projection_goes_with_the_core(make_job: MakeJob) -> None:
    """Megatron-core refuses it alone: it is what the core's backward needs."""
    both = moved(make_job, "core_attn", "attn_proj")
    assert both - moved(make_job, "core_attn") == pytest.approx(LAYERS * 2 * TOKENS * 128 * 32)


def test_modules_add_up_and_leave_the_device(make_job: MakeJob) -> None:
    both = moved(make_job, "expert_fc1", "moe_act")
    assert both == moved(make_job, "expert_fc1") + moved(make_job, "moe_act")
    plain = make_job(MOE)
    job = make_job({**MOE, "plan.offload": {"modules": ["expert_fc1", "moe_act"]}})
    assert project_memory(plain).peak.activations - project_memory(job).peak.activations == pytest.approx(both)
    assert project_memory(job).host == pytest.approx(both)
    assert project(job).step_time >= project(plain).step_time


def test_a_share_of_named_modules(make_job: MakeJob) -> None:
    half = make_job({**MOE, "plan.offload": {"modules": ["moe_act"], "activations": 0.5}})
    assert kept_chunk(half, half.plan.pipeline.layout[0]).offloaded == pytest.approx(0.5 * moved(make_job, "moe_act"))


def test_what_is_recomputed_does_not_move(make_job: MakeJob) -> None:
    recompute = {"plan.recompute": {"policy": "modules", "modules": ["layernorm"]}}
    assert moved(make_job, "qkv_linear", **recompute) == 0
    assert moved(make_job, "attn_norm", **recompute) == moved(make_job, "attn_norm")


def test_without_modules_the_share_is_of_everything(make_job: MakeJob) -> None:
    job = make_job({**MOE, "plan.offload": {"activations": 0.25}})
    unit = next(u for u, _ in units(job, job.plan.pipeline.layout[0]) if u.layer is not None)
    ops = lower_unit(job, unit)
    kept = kept_bytes(ops, unit.recompute)
    assert offloaded_bytes(ops, unit.recompute, job.plan.offload) == pytest.approx(tuple(0.25 * n for n in kept))


def test_every_tensor_named_exists(make_job: MakeJob) -> None:
    """No entry of the table names an op or a tensor that layers no longer have."""
    held = set()
    for model in ("llama3.1-8b", "deepseek-v3", "qwen3-30b-a3b"):
        job = make_job({"model": model})
        for chunk in job.plan.pipeline.layout:
            for unit, _ in units(job, chunk):
                held |= {(op.name.partition(":")[0], kept.name) for op in lower_unit(job, unit) for kept in op.keeps}
    assert set(INPUT_OF) - held <= {("qkv", "rotated_qk")}


@pytest.mark.parametrize(
    ("model", "elements"), [("llama3.1-8b", 32 * 2 * 14336), ("qwen3-30b-a3b", LAYERS * 2 * 8 * WIDTH)]
)
def test_an_activation_input_in_fp8_is_half_as_large(make_job: MakeJob, model: str, elements: int) -> None:
    """Megatron-core's activation_func_fp8_input_store."""

    def kept(**precision: str) -> float:
        job = make_job({"model": model, "plan.precision": {"compute": "bf16", **precision}})
        return kept_chunk(job, job.plan.pipeline.layout[0]).activations

    assert kept() - kept(activation_input="fp8") == pytest.approx(TOKENS * elements)
