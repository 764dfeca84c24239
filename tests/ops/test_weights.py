"""Parameter counts in closed form, and what each rank holds."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from windtunnel.job.model import (
    MLA,
    Indexer,
    LinearAttention,
    ModelSpec,
    ModelVariant,
    MoE,
    SlidingWindow,
)
from windtunnel.ops.weights import (
    Weight,
    active_parameters,
    count,
    embedding_weights,
    final_norm_weights,
    head_weights,
    layer_weights,
    local_count,
    mtp_weights,
    total_parameters,
)

H, A, KV, D, F, V = 256, 8, 4, 32, 512, 1000


def dense(**changes: object) -> ModelSpec:
    values: dict[str, object] = {
        "name": "small",
        "num_layers": 2,
        "hidden_size": H,
        "vocab_size": V,
        "num_attention_heads": A,
        "num_key_value_heads": KV,
        "head_dim": D,
        "intermediate_size": F,
    }
    return ModelSpec(**{**values, **changes})  # type: ignore[arg-type]


def moe(**changes: object) -> ModelSpec:
    sizes = MoE(num_experts=8, num_experts_per_token=2, moe_intermediate_size=64, shared_expert_intermediate_size=128)
    return dense(**{"moe": sizes, **changes})


LATENT = MLA(q_lora_rank=96, kv_lora_rank=64, qk_nope_head_dim=32, qk_rope_head_dim=16, v_head_dim=24)


def layer_count(model: ModelSpec, index: int = 0) -> int:
    return count(layer_weights(model, model.layers[index]))


def names(model: ModelSpec, index: int = 0) -> set[str]:
    return {weight.name for weight in layer_weights(model, model.layers[index])}


def test_dense_layer_in_closed_form() -> None:
    attention = H * A * D + 2 * H * KV * D + A * D * H
    assert layer_count(dense()) == attention + 3 * H * F + 2 * H


def test_plain_activation_has_two_matrices() -> None:
    assert layer_count(dense()) - layer_count(dense(activation="relu2")) == H * F


def test_gpt_layer_has_12_h_squared_and_13_h() -> None:
    """Narayanan et al., SC21, section 3: 12·h² and 13·h a layer."""
    gpt = dense(
        num_key_value_heads=A, intermediate_size=4 * H, activation="gelu", norm="layernorm",
        attention_bias=True, mlp_bias=True, position="learned", max_position_embeddings=64, tie_word_embeddings=True,
    )  # fmt: skip
    assert layer_count(gpt) == 12 * H**2 + 13 * H
    assert total_parameters(gpt) == 2 * (12 * H**2 + 13 * H) + V * H + 64 * H + 2 * H


def test_layernorm_has_scale_and_shift() -> None:
    assert count(final_norm_weights(dense())) == H
    assert count(final_norm_weights(dense(norm="layernorm"))) == 2 * H


def test_query_key_norm_widths() -> None:
    plain = layer_count(dense())
    extra = {
        width: layer_count(dense(qk_norm=True, variant=ModelVariant(qk_norm_width=width))) - plain
        for width in ("head", "full", "weightless")
    }
    assert extra == {"head": 2 * D, "full": (A + KV) * D, "weightless": 0}


def test_attention_bias_with_and_without_output() -> None:
    plain, queries = layer_count(dense()), (A + 2 * KV) * D
    assert layer_count(dense(attention_bias=True)) == plain + queries + H
    qwen = dense(attention_bias=True, variant=ModelVariant(attention_output_bias=False))
    assert layer_count(qwen) == plain + queries


def test_gate_sinks_extras_and_norms() -> None:
    plain = layer_count(dense())
    assert layer_count(dense(variant=ModelVariant(attention_gate=True))) == plain + H * A * D
    assert layer_count(dense(attention_sinks=True)) == plain + A
    assert layer_count(dense(variant=ModelVariant(extra_parameters_per_layer=7))) == plain + 7
    assert layer_count(dense(variant=ModelVariant(norms_per_layer=4))) == plain + 2 * H


def test_global_layers_may_be_wider_and_share_key_and_value() -> None:
    variant = ModelVariant(global_head_dim=64, global_num_key_value_heads=2, key_is_value=True)
    model = dense(sliding_window=SlidingWindow(size=16, local_per_global=1), variant=variant)
    assert layer_count(model, 0) == layer_count(dense())
    assert layer_count(model, 1) == H * A * 64 * 2 + H * 2 * 64 + 3 * H * F + 2 * H


def test_latent_attention_in_closed_form() -> None:
    model = dense(mla=LATENT, num_key_value_heads=A, head_dim=LATENT.qk_head_dim)
    query = 96 * H + 96 + A * 48 * 96
    keys = (64 + 16) * H + 64 + A * (32 + 24) * 64
    assert layer_count(model) == query + keys + H * A * 24 + 3 * H * F + 2 * H
    full_rank = replace(model, mla=replace(LATENT, q_lora_rank=None))
    assert layer_count(model) - layer_count(full_rank) == query - A * 48 * H


def test_latents_are_whole_and_heads_divided_over_tp() -> None:
    model = dense(mla=LATENT)
    shards = {weight.name: weight.shard for weight in layer_weights(model, model.layers[0])}
    assert {shards[name] for name in ("query_down", "kv_down", "query_norm", "kv_norm")} == {"replicated"}
    assert {shards[name] for name in ("query_up", "kv_up", "attention_output")} == {"tp"}


def test_latent_attention_biases() -> None:
    plain = dense(mla=LATENT)
    assert layer_count(replace(plain, attention_bias=True)) - layer_count(plain) == 96 + (64 + 16) + H


def test_indexer() -> None:
    indexer = Indexer(num_heads=4, head_dim=16, tokens_per_query=8)
    with_indexer = dense(mla=LATENT, variant=ModelVariant(indexer=indexer))
    assert layer_count(with_indexer) - layer_count(dense(mla=LATENT)) == 4 * 16 * 96 + 16 * H + 2 * 16 + 4 * H


def test_experts_are_one_weight_with_copies() -> None:
    model = moe()
    up = next(weight for weight in layer_weights(model, model.layers[0]) if weight.name == "up")
    assert (up.rows, up.cols, up.copies, up.shard, up.module) == (2 * 64, H, 8, "expert", "experts")
    attention = H * A * D * 2 + 2 * H * KV * D
    assert layer_count(model) == attention + 2 * H + 8 * H + 8 * 3 * H * 64 + 3 * H * 128


def test_biases_of_router_experts_and_shared_gate() -> None:
    plain = moe()
    assert plain.moe is not None
    assert layer_count(replace(plain, moe=replace(plain.moe, router_bias=True))) == layer_count(plain) + 8
    biased = layer_count(replace(plain, mlp_bias=True)) - layer_count(plain)
    assert biased == 8 * (2 * 64 + H) + 2 * 128 + H
    assert layer_count(replace(plain, variant=ModelVariant(shared_expert_gate=True))) == layer_count(plain) + H


def test_mamba2_in_closed_form() -> None:
    mixer = LinearAttention(kind="mamba2", pattern="M*", num_heads=8, head_dim=64, state_dim=16, num_groups=2)
    inner, key = 512, 32
    expected = H * (2 * inner + 2 * key + 8) + (inner + 2 * key) * (4 + 1) + 3 * 8 + inner + inner * H
    assert layer_count(dense(linear_attention=mixer)) == expected + 3 * H * F + 2 * H


def test_gated_deltanet_in_closed_form() -> None:
    mixer = LinearAttention(kind="gated_deltanet", pattern="M*", num_heads=8, head_dim=32, state_dim=16, num_groups=4)
    inner, key = 256, 64
    expected = H * (2 * key + 2 * inner + 2 * 8) + (2 * key + inner) * 4 + 2 * 8 + 32 + inner * H
    assert layer_count(dense(linear_attention=mixer)) == expected + 3 * H * F + 2 * H


def test_lightning_in_closed_form() -> None:
    mixer = LinearAttention(kind="lightning", pattern="M*", num_heads=8, head_dim=32, state_dim=32, num_groups=8)
    assert layer_count(dense(linear_attention=mixer)) == 4 * H * 256 + 256 + 256 * H + 3 * H * F + 2 * H


def test_pattern_with_separate_modules_has_one_norm_a_layer() -> None:
    mixer = LinearAttention(kind="mamba2", pattern="-*", num_heads=8, head_dim=64, state_dim=16, num_groups=2)
    model = dense(linear_attention=mixer)
    assert layer_count(model, 0) == 3 * H * F + H
    assert names(model, 1) == {"norm_0", "query", "key", "value", "attention_output"}


def test_mtp_depth_adds_projection_and_three_norms() -> None:
    model = dense(num_mtp_layers=1)
    assert count(mtp_weights(model)) == layer_count(model) + 2 * H * H + 3 * H
    assert total_parameters(model) == total_parameters(dense())


def test_tied_head_adds_nothing_but_its_own_copy_can_be_asked_for() -> None:
    tied = dense(tie_word_embeddings=True)
    assert head_weights(tied) == ()
    assert count(head_weights(tied, own_copy=True)) == V * H
    assert total_parameters(dense()) - total_parameters(tied) == V * H


def test_padded_vocabulary_is_the_callers() -> None:
    assert count(embedding_weights(dense(), 1024)) == count(head_weights(dense(), 1024)) == 1024 * H
    assert local_count(embedding_weights(dense(), 1024)[0], tp=4) == 256 * H


def test_active_parameters_by_convention() -> None:
    model = moe()
    routed_idle = 2 * (8 - 2) * 3 * H * 64
    every = active_parameters(model, embedding=True, head=True)
    assert every == total_parameters(model) - routed_idle
    assert active_parameters(model, embedding=False, head=True) == every - V * H
    assert active_parameters(model, embedding=False, head=False) == every - 2 * V * H
    tied = replace(model, tie_word_embeddings=True)
    assert active_parameters(tied, embedding=False, head=True) == active_parameters(tied, embedding=True, head=True)


def test_fewer_key_value_heads_than_tp_keep_one_head_each() -> None:
    key = Weight("key", 2 * D, H, "tp", "attention", heads=2)
    assert local_count(key, tp=8) == D * H
    assert local_count(key, tp=2) == D * H
    assert local_count(key, tp=1) == 2 * D * H


def test_uneven_division_is_a_fraction() -> None:
    assert local_count(Weight("w", 3, 1, "tp", "mlp"), tp=2) == 1.5


POWERS = st.sampled_from([1, 2, 4])


@given(
    model=st.sampled_from([
        dense(), dense(qk_norm=True, attention_bias=True, mlp_bias=True), moe(), moe(mlp_bias=True), dense(mla=LATENT)
    ]),
    tp=POWERS, ep=POWERS, etp=POWERS,
)  # fmt: skip
def test_ranks_together_hold_the_model_once(model: ModelSpec, tp: int, ep: int, etp: int) -> None:
    """Summed over the ranks that divide it, every weight is there once; a replicated one once a rank."""
    for weight in layer_weights(model, model.layers[0]):
        local = local_count(weight, tp, ep, etp)
        assert isinstance(local, int)
        copies_of_width = etp if weight.whole_width else 1
        shares = {"tp": tp, "vocab": tp, "replicated": 1, "expert": ep * etp // copies_of_width}[weight.shard]
        assert local * shares == weight.count
