"""Identities of lowered layers: backward is twice forward, shards sum to the whole, matrices match GEMMs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windtunnel.catalog.models import find_model
from windtunnel.job import Job
from windtunnel.job.model import LayerSpec, ModelSpec
from windtunnel.job.plan import ContextParallel, Dropout, Loss, MoePlan
from windtunnel.ops.context import Context
from windtunnel.ops.layer import kept_bytes, lower_head, lower_layer
from windtunnel.ops.moe import routed_rows
from windtunnel.ops.op import Attention, Collective, Gemm, GroupedGemm, Op
from windtunnel.ops.weights import layer_weights

WHOLE = Context(
    micro_batch_size=2,
    sequence_length=4096,
    tp=1,
    cp=1,
    ep=1,
    etp=1,
    sequence_parallel=False,
    compute="bf16",
    fused_attention=True,
    fp8_attention=False,
    activation_input=2.0,
    fused_kernels=True,
    compiled=False,
    torch_routing=False,
    kept_tensors="megatron",
    weighs_in_experts=True,
    fused_qkv=False,
    keeps_quantized_inputs=False,
    local_spec=False,
    gather_in_fp8=False,
    moe=MoePlan(),
    context_parallel=ContextParallel(),
    dropout=Dropout(),
    loss=Loss(),
    loss_pieces=1,
)
NAMES = (
    "llama3.1-8b", "gpt3-175b", "mixtral-8x7b", "deepseek-v3", "qwen3-30b-a3b", "gpt-oss-20b",
    "nemotron-3-nano-30b-a3b", "qwen3-next-80b-a3b", "glm-4.5",
)  # fmt: skip


def flops_by_name(ops: tuple[Op, ...]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for op in ops:
        if isinstance(op, Gemm | GroupedGemm):
            found[op.name][op.phase] += op.flops
    return found


def distinct(model: ModelSpec) -> list[LayerSpec]:
    return list(dict.fromkeys(model.layers))


@pytest.mark.parametrize("name", NAMES)
def test_backward_of_every_matrix_is_twice_its_forward(name: str) -> None:
    model = find_model(name)
    for layer in distinct(model):
        for phases in flops_by_name(lower_layer(model, layer, WHOLE)).values():
            assert phases["B"] == phases["W"] == phases["F"]


@pytest.mark.parametrize("name", ["llama3.1-8b", "gpt3-175b", "opt-13b", "qwen3-8b", "deepseek-v2-lite"])
def test_forward_flops_of_dense_matrices_are_two_per_weight_and_token(name: str) -> None:
    model = find_model(name)
    for layer in distinct(model):
        if layer.feed_forward == "moe":
            continue
        matrices = sum(w.rows * w.cols for w in layer_weights(model, layer) if w.cols > 1)
        forward = sum(phases["F"] for phases in flops_by_name(lower_layer(model, layer, WHOLE)).values())
        assert forward == 2 * WHOLE.tokens * matrices


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    tp=st.sampled_from([1, 2, 4, 8]),
    cp=st.sampled_from([1, 2, 4]),
    ep=st.sampled_from([1, 2, 4, 8]),
    etp=st.sampled_from([1, 2]),
)
def test_shards_sum_to_the_whole(name: str, tp: int, cp: int, ep: int, etp: int) -> None:
    """Replicated parts apart (router, latent down-projections), every rank runs its fraction of each matrix."""
    model = find_model(name)
    if model.mla is None and model.num_key_value_heads < tp:
        return  # each rank then computes one whole key-value head
    ctx = replace(WHOLE, tp=tp, cp=cp, ep=ep, etp=etp, sequence_parallel=tp > 1)
    for layer in distinct(model):
        whole = flops_by_name(lower_layer(model, layer, WHOLE))
        shard = flops_by_name(lower_layer(model, layer, ctx))
        for op, phases in whole.items():
            assert shard[op]["F"] * tp * cp == pytest.approx(phases["F"], rel=1e-9), op


def test_attention_scores_are_shared_by_heads_and_context() -> None:
    model = find_model("llama3.1-8b")
    whole = sum(op.flops for op in lower_layer(model, model.layers[0], WHOLE) if isinstance(op, Attention))
    ctx = replace(WHOLE, tp=4, cp=2, sequence_parallel=True)
    shard = sum(op.flops for op in lower_layer(model, model.layers[0], ctx) if isinstance(op, Attention))
    assert shard * 8 == pytest.approx(whole)


def test_causal_scores_are_half_the_square() -> None:
    model = find_model("llama3.1-8b")
    forward = next(op for op in lower_layer(model, model.layers[0], WHOLE) if isinstance(op, Attention))
    assert forward.flops == 2 * (4 * 4096**2 * 128 * 32) / 2  # 2 sequences, 2 products of 2 FLOP, half of the square


def test_contiguous_context_shares_load_the_last_rank() -> None:
    """Four contiguous quarters of a causal triangle: 1, 3, 5 and 7 sixteenths; the mean is 4."""
    even = Attention(name="a", phase="F", batch=1, heads=1, sequence=64, qk_dim=1, v_dim=1, context=4)
    last = replace(even, balanced=False)
    assert last.pairs / even.pairs == 7 / 4


def test_a_window_counts_its_band() -> None:
    op = Attention(
        name="a", phase="F", batch=1, heads=1, sequence=4, qk_dim=1, v_dim=1, window=2
    )  # rows see 1, 2, 2, 2 keys; the half-square convention counts s²/2 = 8 for the full triangle of 10
    assert op.pairs == pytest.approx(4 * 2 * (1 - 2 / 8))


def test_imbalance_loads_the_hottest_rank_and_a_capacity_factor_fixes_it() -> None:
    moe = find_model("mixtral-8x7b").moe
    assert moe is not None
    balanced = routed_rows(moe, WHOLE)
    assert balanced == WHOLE.tokens * 2
    assert routed_rows(moe, replace(WHOLE, moe=MoePlan(imbalance=1.5))) == 1.5 * balanced
    assert routed_rows(moe, replace(WHOLE, moe=MoePlan(imbalance=1.5, capacity_factor=1.0))) == balanced


def test_kept_bytes_of_an_eager_layer_equal_the_executed_count() -> None:
    """Executed on CPU with saved-tensor hooks: t·(6h + 2(a+2kv)d + 2ad + 4a + 8f + 8), the block's input apart."""
    model = ModelSpec(
        name="small", num_layers=1, hidden_size=512, vocab_size=1024, num_attention_heads=8, num_key_value_heads=2,
        head_dim=64, intermediate_size=1408,
    )  # fmt: skip
    ctx = replace(WHOLE, micro_batch_size=2, sequence_length=128, kept_tensors="torchtitan")
    kept, _ = kept_bytes(lower_layer(model, model.layers[0], ctx), frozenset())
    t, h, a, kv, d, f = 256, 512, 8, 2, 64, 1408
    layer_input = 2 * t * h
    assert kept - layer_input == t * (6 * h + 2 * (a + 2 * kv) * d + 2 * a * d + 4 * a + 8 * f + 8)


def test_full_recompute_keeps_the_input_of_a_layer() -> None:
    model = find_model("llama3.1-8b")
    kept, dispatcher = kept_bytes(lower_layer(model, model.layers[0], WHOLE), frozenset({"full"}))
    assert (kept, dispatcher) == (2 * WHOLE.tokens * 4096, 0)


@pytest.mark.parametrize(
    ("module", "saved"),
    [
        ("layernorm", lambda t, h, f, a: 2 * 2 * t * h),
        ("mlp", lambda t, h, f, a: 6 * t * f),
        ("core_attn", lambda t, h, f, a: 4 * t * a),
    ],
)
def test_recompute_modules_drop_their_tensors(module: str, saved: Callable[..., float]) -> None:
    model = find_model("llama3.1-8b")
    ops = lower_layer(model, model.layers[0], WHOLE)
    before, after = kept_bytes(ops, frozenset())[0], kept_bytes(ops, frozenset({module}))[0]
    assert before - after == saved(WHOLE.tokens, 4096, 14336, 32)


def test_norms_of_queries_and_keys_keep_what_they_read() -> None:
    model = find_model("qwen3-30b-a3b")
    plain = replace(model, qk_norm=False)
    ctx = replace(WHOLE, tp=2, sequence_parallel=True)
    more, less = (kept_bytes(lower_layer(m, m.layers[0], ctx), frozenset())[0] for m in (model, plain))
    rows = (32 + 4) / 2
    assert more - less == ctx.tokens * rows * (2 * 128 + 4)


@pytest.mark.parametrize(
    ("local", "sequence", "dropout", "per_score"),
    [(False, 4096, 0.0, 2), (True, 4096, 0.0, 2), (True, 8192, 0.0, 6), (True, 4096, 0.1, 5), (True, 8192, 0.1, 9)],
)
def test_scores_of_an_unfused_core(local: bool, sequence: int, dropout: float, per_score: int) -> None:
    """Probabilities in bf16; a mask and what is left of them after dropout; in fp32 too where torch computes them."""
    model = find_model("llama2-7b")
    ctx = replace(
        WHOLE, micro_batch_size=1, sequence_length=sequence, fused_attention=False, local_spec=local,
        dropout=Dropout(attention=dropout),
    )  # fmt: skip
    ops = lower_layer(model, model.layers[0], ctx)
    kept = {kept.name: kept.bytes for op in ops for kept in op.keeps}
    assert kept["scores"] == per_score * 32 * sequence**2


@pytest.mark.parametrize(
    ("activation", "since_2025", "tensors"),
    [("gelu", True, 3), ("gelu", False, 2), ("relu2", True, 2), ("swiglu", True, 3)],
)
def test_experts_that_weigh_unfused_keep_one_tensor_more(activation: str, since_2025: bool, tensors: int) -> None:
    """Input, result and weighed result of a plain activation; a fused gated one keeps its two inputs and the last."""
    model = replace(find_model("mixtral-8x7b"), activation=activation)
    ctx = replace(WHOLE, weighs_in_experts=since_2025)
    assert model.moe is not None
    size = 2 * routed_rows(model.moe, ctx) * model.moe.moe_intermediate_size
    ops = [op for op in lower_layer(model, model.layers[0], ctx) if op.name == "expert_activation"]
    assert kept_bytes(tuple(ops), frozenset())[0] == tensors * size
    assert kept_bytes(tuple(ops), frozenset({"moe_act"}))[0] == (2 if activation == "swiglu" else 1) * size


def test_sequence_parallelism_divides_the_kept_bytes_of_megatron_by_tp() -> None:
    model = find_model("llama3.1-8b")
    whole = kept_bytes(lower_layer(model, model.layers[0], WHOLE), frozenset())[0]
    ctx = replace(WHOLE, tp=4, sequence_parallel=True)
    assert kept_bytes(lower_layer(model, model.layers[0], ctx), frozenset())[0] * 4 == pytest.approx(whole)


def test_the_head_keeps_the_input_and_output_of_the_final_norm() -> None:
    model = find_model("llama3.1-8b")
    kept, _ = kept_bytes(lower_head(model, model.vocab_size, WHOLE), frozenset())
    assert kept == WHOLE.tokens * (4 * 4096 + 4)


def test_fp8_recipes_add_casts_and_nothing_else(make_job: Callable[..., Job]) -> None:
    model = find_model("llama3.1-8b")
    plain = lower_layer(model, model.layers[0], WHOLE)
    cast = lower_layer(model, model.layers[0], replace(WHOLE, compute="fp8_delayed"))
    extra = [op for op in cast if op.name not in {other.name for other in plain}]
    assert {op.name.partition("_cast:")[2] for op in extra} == {"fp8_delayed"}
    assert len(cast) == len(plain) + len(extra)


TOKENS = 2 * 4096.0


@pytest.mark.parametrize(
    ("loss", "pieces", "kind", "sizes"),
    [
        (Loss(), 1, "all_reduce", [4 * TOKENS] * 3),
        (Loss(fused_cross_entropy=True), 1, "all_reduce", [4 * TOKENS, 8 * TOKENS]),
        (Loss(fused_cross_entropy=True, implementation="te"), 1, "all_gather", [3 * 4 * TOKENS * 4]),
        (Loss(implementation="chunked"), 8, "all_reduce", [4 * TOKENS / 8] * 24),
        (Loss(vocab_parallel=False), 1, "all_gather", [2 * TOKENS * 128256]),
    ],
)
def test_what_ranks_with_a_part_of_the_vocabulary_exchange(
    loss: Loss, pieces: int, kind: str, sizes: list[float]
) -> None:
    """Three figures of every token in fp32: one after the other, two at once, all gathered at once; or the logits."""
    model, parted = find_model("llama3.1-8b"), replace(WHOLE, tp=4, loss=loss, loss_pieces=pieces)
    found = [op for op in lower_head(model, 128256, parted) if isinstance(op, Collective) and op.name == "head_loss"]
    assert [op.collective for op in found] == [kind] * len(sizes)
    assert [op.size for op in found] == pytest.approx(sizes)
    alone = lower_head(model, 128256, replace(WHOLE, loss=loss, loss_pieces=pieces))
    assert not [op for op in alone if isinstance(op, Collective)]
