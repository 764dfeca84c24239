"""Bytes of shards sum to the bytes of the whole."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_ops import WHOLE

from windtunnel.catalog.models import find_model
from windtunnel.job.model import ModelSpec
from windtunnel.ops.context import Context, context
from windtunnel.ops.layer import kept_bytes, lower_layer
from windtunnel.ops.moe import routed_rows
from windtunnel.ops.op import Collective, ExpertExchange, Gemm, GroupedGemm, Stream
from windtunnel.ops.weights import layer_weights, local_count

DENSE = ("llama3.1-8b", "gpt3-175b", "qwen3-32b")
SPARSE = ("mixtral-8x7b", "qwen3-30b-a3b", "olmoe-1b-7b")
DEGREES = st.sampled_from([1, 2, 4])


@settings(max_examples=30, deadline=None)
@given(name=st.sampled_from(DENSE), tp=DEGREES, cp=DEGREES)
def test_kept_bytes_of_dense_layers(name: str, tp: int, cp: int) -> None:
    """Megatron-core under sequence parallelism keeps nothing twice; a context-parallel ring keeps rotated copies."""
    model = find_model(name)
    reference = replace(WHOLE, cp=cp)
    shard = replace(WHOLE, tp=tp, cp=cp, sequence_parallel=tp > 1)
    one = kept_bytes(lower_layer(model, model.layers[0], reference), frozenset())[0]
    part = kept_bytes(lower_layer(model, model.layers[0], shard), frozenset())[0]
    assert part * tp == pytest.approx(one, rel=1e-12)
    if model.position != "rope":
        assert one * cp == pytest.approx(kept_bytes(lower_layer(model, model.layers[0], WHOLE), frozenset())[0])


@settings(max_examples=40, deadline=None)
@given(name=st.sampled_from(SPARSE), tp=DEGREES, cp=DEGREES, ep=st.sampled_from([1, 2, 4, 8]), etp=DEGREES)
def test_routed_rows_of_all_ranks_are_every_copy_of_every_token(name: str, tp: int, cp: int, ep: int, etp: int) -> None:
    """tp · cp ranks hold one batch; each etp rank sees all rows its experts share and a part of their width."""
    moe = find_model(name).moe
    assert moe is not None
    ctx = replace(WHOLE, tp=tp, cp=cp, ep=ep, etp=etp, sequence_parallel=tp > 1)
    assert routed_rows(moe, ctx) * tp * cp / etp == WHOLE.tokens * moe.num_experts_per_token


@settings(max_examples=30, deadline=None)
@given(name=st.sampled_from(DENSE), tp=DEGREES, cp=DEGREES)
def test_activation_bytes_of_streams(name: str, tp: int, cp: int) -> None:
    model = find_model(name)
    ctx = replace(WHOLE, tp=tp, cp=cp, sequence_parallel=tp > 1)

    def moved(context: Context) -> float:
        ops = lower_layer(model, model.layers[0], context)
        return sum(op.bytes_moved for op in ops if isinstance(op, Stream) and op.name != "ring_merge")

    assert moved(ctx) * tp * cp == pytest.approx(moved(WHOLE))


@given(name=st.sampled_from(DENSE), tp=DEGREES, cp=DEGREES)
def test_a_ring_merges_what_each_hop_gives(name: str, tp: int, cp: int) -> None:
    """Forward: 4 + 2 + 4 bytes an element of three quarters of q a hop; backward: three passes over dq, dk and dv."""
    model = find_model(name)
    layer = model.layers[0]
    ctx = replace(WHOLE, tp=tp, cp=cp, sequence_parallel=tp > 1)
    merges = [op for op in lower_layer(model, layer, ctx) if isinstance(op, Stream) and op.name == "ring_merge"]
    if cp == 1:
        assert not merges
        return
    q = model.num_attention_heads * layer.head_dim / tp
    kv = 2 * max(layer.num_key_value_heads, tp) * layer.head_dim / tp
    found = {op.phase: op.bytes_moved / (ctx.tokens * (cp - 1)) for op in merges}
    assert found["F"] == pytest.approx(10 * 0.75 * q)
    assert found["B"] == pytest.approx(6 * (0.75 * q + kv))


@settings(max_examples=30, deadline=None)
@given(name=st.sampled_from(SPARSE), ep=st.sampled_from([1, 2, 4, 8]), etp=DEGREES)
def test_expert_matrices_divide_over_ep_and_etp(name: str, ep: int, etp: int) -> None:
    model = find_model(name)
    ctx = replace(WHOLE, ep=ep, etp=etp, tp=etp, sequence_parallel=etp > 1)
    groups = [op for op in lower_layer(model, model.layers[0], ctx) if isinstance(op, GroupedGemm) and op.phase == "F"]
    weights = [w for w in layer_weights(model, model.layers[0]) if w.shard == "expert"]
    elements = sum(op.groups * op.n * op.k for op in groups)
    assert elements == sum(local_count(w, 1, ep, etp) for w in weights)


@given(tp=st.sampled_from([2, 4, 8]))
def test_gathers_carry_the_whole_sequence_whatever_the_degree(tp: int) -> None:
    model = find_model("llama3.1-8b")
    ctx = replace(WHOLE, tp=tp, sequence_parallel=True)
    sizes = {
        op.size for op in lower_layer(model, model.layers[0], ctx) if isinstance(op, Collective) and op.group == "tp"
    }
    assert sizes == {2 * WHOLE.tokens * 4096}


def test_every_matrix_of_a_dense_layer_is_a_gemm() -> None:
    model = find_model("llama3.1-8b")
    gemms = [op for op in lower_layer(model, model.layers[0], WHOLE) if isinstance(op, Gemm) and op.phase == "F"]
    matrices = sum(w.count for w in layer_weights(model, model.layers[0]) if w.cols > 1)
    assert sum(op.n * op.k for op in gemms) == matrices


@settings(max_examples=40, deadline=None)
@given(name=st.sampled_from(SPARSE), tp=DEGREES, cp=DEGREES, ep=st.sampled_from([2, 4, 8]))
def test_kept_bytes_of_expert_layers(name: str, tp: int, cp: int, ep: int) -> None:
    """With whole experts everything an expert layer keeps is divided over tp, whatever ep is, but for the statistics of
    norms that span all heads."""
    model = find_model(name)
    reference = replace(WHOLE, cp=cp, ep=2)
    shard = replace(WHOLE, tp=tp, cp=cp, ep=ep, sequence_parallel=tp > 1)
    one = sum(kept_bytes(lower_layer(model, model.layers[0], reference), frozenset()))
    part = sum(kept_bytes(lower_layer(model, model.layers[0], shard), frozenset()))
    whole = 2 * 4 * reference.tokens if model.variant.qk_norm_width == "full" else 0
    assert (part - whole) * tp == pytest.approx(one - whole, rel=1e-12)


@settings(max_examples=40, deadline=None)
@given(name=st.sampled_from(SPARSE), tp=DEGREES, cp=DEGREES, ep=st.sampled_from([2, 4, 8]))
def test_exchanges_carry_every_token_once(name: str, tp: int, cp: int, ep: int) -> None:
    """The tp · cp ranks of one batch hand its tokens to the dispatcher once: dispatch and combine, both directions."""
    model = find_model(name)
    ctx = replace(WHOLE, tp=tp, cp=cp, ep=ep, sequence_parallel=tp > 1)
    found = [op for op in lower_layer(model, model.layers[0], ctx) if isinstance(op, ExpertExchange)]
    assert len(found) == 4
    for op in found:
        assert op.tokens * op.row_bytes * tp * cp == WHOLE.tokens * model.hidden_size * 2


@settings(max_examples=30, deadline=None)
@given(name=st.sampled_from(DENSE), tp=DEGREES, cp=DEGREES)
def test_activation_bytes_of_dense_matrices(name: str, tp: int, cp: int) -> None:
    """A column-parallel matrix shares its output over tp and reads its whole input; a row-parallel one the reverse."""
    model = find_model(name)
    ctx = replace(WHOLE, tp=tp, cp=cp, sequence_parallel=tp > 1)
    whole, shard = forward_gemms(model, WHOLE), forward_gemms(model, ctx)
    assert whole.keys() == shard.keys()
    for key, one in whole.items():
        assert shard[key].m * cp == one.m
        assert sorted((one.n / shard[key].n, one.k / shard[key].k)) == [1, tp]


def forward_gemms(model: ModelSpec, ctx: Context) -> dict[str, Gemm]:
    ops = lower_layer(model, model.layers[0], ctx)
    return {op.name: op for op in ops if isinstance(op, Gemm) and op.phase == "F"}


def test_a_quantized_megatron_gathers_one_byte_an_element(make_job) -> None:
    changes = {"plan.parallel.tp": 4, "plan.parallel.sequence_parallel": True}
    half = context(make_job(changes))
    quantized = context(make_job({**changes, "plan.precision.compute": "fp8_delayed"}))
    model = find_model("llama3.1-8b")

    def gathered(ctx: Context) -> float:
        ops = lower_layer(model, model.layers[0], ctx)
        return sum(op.size for op in ops if isinstance(op, Collective) and op.collective == "all_gather")

    assert gathered(quantized) == gathered(half) / 2
