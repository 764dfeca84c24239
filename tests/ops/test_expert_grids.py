"""Expert and dense parameters per rank of twelve models on six grids, against a count that shares no code with ours."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any

import pytest

from windtunnel.catalog.models import find_model
from windtunnel.job import Job
from windtunnel.job.model import ModelSpec
from windtunnel.memory.structure import structures

MODELS = (
    "mixtral-8x7b", "mixtral-8x22b", "qwen3-30b-a3b", "qwen3-235b-a22b", "qwen2-57b-a14b", "deepseek-v2-lite",
    "deepseek-v3", "kimi-k2", "glm-4.5-air", "gpt-oss-20b", "gpt-oss-120b", "olmoe-1b-7b",
)  # fmt: skip
GRIDS = (
    # tp, pp, cp, dp, ep, etp
    (1, 1, 1, 8, 8, 1),
    (2, 1, 1, 4, 4, 1),
    (2, 1, 1, 4, 2, 2),
    (1, 2, 1, 8, 4, 1),
    (4, 2, 2, 2, 8, 1),
    (4, 2, 1, 4, 2, 4),
)


def norm_parameters(model: ModelSpec, width: int) -> int:
    return 2 * width if model.norm == "layernorm" else width


def attention_parameters(model: ModelSpec, tp: int) -> float:
    """One layer's attention on one tp rank."""
    h, a = model.hidden_size, model.num_attention_heads
    if model.mla is not None:
        m = model.mla
        qk = m.qk_nope_head_dim + m.qk_rope_head_dim
        if m.q_lora_rank:
            query = h * m.q_lora_rank + norm_parameters(model, m.q_lora_rank) + m.q_lora_rank * a * qk / tp
        else:
            query = h * a * qk / tp
        down = h * (m.kv_lora_rank + m.qk_rope_head_dim) + norm_parameters(model, m.kv_lora_rank)
        return query + down + m.kv_lora_rank * a * (m.qk_nope_head_dim + m.v_head_dim) / tp + a * m.v_head_dim * h / tp
    q, kv = a * model.head_dim, max(model.num_key_value_heads, tp) * model.head_dim
    total = (h * q + 2 * h * kv + q * h) / tp
    if model.attention_bias:
        total += (q + 2 * kv) / tp
        total += h if model.variant.attention_output_bias is not False else 0
    if model.attention_sinks:
        total += a / tp
    if model.qk_norm:
        full = model.variant.qk_norm_width == "full"
        total += (a + model.num_key_value_heads) * model.head_dim if full else 2 * model.head_dim
    return total


def expert_parameters(model: ModelSpec, ep: int, etp: int) -> float:
    """One layer's routed experts on one rank."""
    assert model.moe is not None
    each = 3 * model.hidden_size * model.moe.moe_intermediate_size / etp
    if model.mlp_bias:
        each += 2 * model.moe.moe_intermediate_size / etp + model.hidden_size
    return model.moe.num_experts / ep * each


def dense_parameters(model: ModelSpec, index: int, tp: int) -> float:
    """Everything of one layer but its routed experts, on one tp rank."""
    moe, h = model.moe, model.hidden_size
    assert moe is not None
    total = attention_parameters(model, tp) + 2 * norm_parameters(model, h)
    if index < moe.num_dense_layers:
        return total + 3 * h * model.intermediate_size / tp
    total += h * moe.num_experts + (moe.num_experts if moe.router_bias else 0)
    total += 3 * h * moe.shared_expert_intermediate_size / tp
    return total + (h if model.variant.shared_expert_gate else 0)


def vocabulary(model: ModelSpec, tp: int) -> int:
    step = 128 * tp
    return ceil(model.vocab_size / step) * step


@pytest.mark.parametrize("grid", GRIDS, ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_parameters_per_rank(make_job: Callable[[dict[str, Any]], Job], name: str, grid: tuple[int, ...]) -> None:
    tp, pp, cp, dp, ep, etp = grid
    model = find_model(name)
    cut = [model.num_layers] if pp == 1 else [model.num_layers // 2 + model.num_layers % 2, model.num_layers // 2]
    job = make_job(
        {
            "model": {"base": name, "num_mtp_layers": 0},
            "cluster.num_accelerators": tp * pp * cp * dp,
            "plan.parallel": {"tp": tp, "pp": pp, "cp": cp, "ep": ep, "etp": etp},
            "plan.pipeline": {"layers_per_stage": cut},
        }
    )
    assert job.plan.parallel.dp == dp
    h, first = model.hidden_size, 0
    for stage, (structure, layers) in enumerate(zip(structures(job), cut, strict=True)):
        held = range(first, first + layers)
        first += layers
        sparse = sum(model.layers[index].feed_forward == "moe" for index in held)
        dense = sum(dense_parameters(model, index, tp) for index in held)
        dense += vocabulary(model, tp) / tp * h if stage == 0 else 0
        dense += vocabulary(model, tp) / tp * h + norm_parameters(model, h) if stage == pp - 1 else 0
        assert structure.parameters.expert == sparse * expert_parameters(model, ep, etp)
        assert structure.parameters.dense == dense
