"""What our blocks keep for backward, counted by saved-tensor hooks, is what the op list says: to the byte."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

pytest.importorskip("torch.nn")  # a folder of tests named torch would pass for the package itself
torch = pytest.importorskip("torch")

from windtunnel.catalog.jobs import job_from_mapping  # noqa: E402
from windtunnel.job.job import Job  # noqa: E402
from windtunnel.measure.torch.blocks.build import build, inputs  # noqa: E402
from windtunnel.measure.torch.blocks.kept import kept_bytes  # noqa: E402
from windtunnel.memory.kept import kept_chunk  # noqa: E402
from windtunnel.ops.chunk import Unit, lower_unit, units  # noqa: E402
from windtunnel.ops.layer import kept_bytes as predicted_bytes  # noqa: E402
from windtunnel.ops.sizes import Sizes, sizes  # noqa: E402

SMALL = {"b": 1, "s": 256, "h": 256, "a": 4, "kv": 4, "d": 64, "f": 688}
WIDE = {"b": 2, "s": 128, "h": 512, "a": 8, "kv": 2, "d": 64, "f": 1408}
"""The two shapes of the published counts."""
SHAPES = [
    SMALL,
    WIDE,
    {"b": 1, "s": 192, "h": 384, "a": 6, "kv": 1, "d": 32, "f": 512},
    {"b": 3, "s": 64, "h": 128, "a": 4, "kv": 2, "d": 48, "f": 320},
]


def model(shape: Mapping[str, int], **changes: Any) -> dict[str, Any]:
    base = {
        "name": "block",
        "num_layers": 1,
        "hidden_size": shape["h"],
        "num_attention_heads": shape["a"],
        "num_key_value_heads": shape["kv"],
        "head_dim": shape["d"],
        "intermediate_size": shape["f"],
        "vocab_size": 1024,
    }
    return base | changes


def job_of(
    shape: Mapping[str, int], described: Mapping[str, Any], policy: str = "none", tp: int = 1, **plan: Any
) -> Job:
    """One layer on ``tp`` accelerators under eager PyTorch; ``policy`` a recompute policy or module."""
    recompute = (
        {"policy": policy} if policy in ("none", "full", "per_op") else {"policy": "modules", "modules": [policy]}
    )
    return job_from_mapping(
        {
            "model": described,
            "cluster": {"accelerator": "h100-sxm-80gb", "num_accelerators": tp},
            "software": {"framework": "pytorch-fsdp", "date": "2026-06"},
            "plan": {
                "parallel": {"tp": tp, "sequence_parallel": tp > 1},
                "batch": {
                    "micro_batch_size": shape["b"],
                    "global_batch_size": shape["b"],
                    "sequence_length": shape["s"],
                },
                "sharding": {"strategy": "ddp"},
                "recompute": recompute,
                **plan,
            },
        }
    )


def unit_of(job: Job, kind: str, *, mtp: bool = False) -> Unit:
    found = [unit for chunk in job.plan.pipeline.layout for unit, _ in units(job, chunk)]
    return next(u for u in found if u.kind == kind and (u.layer is None or u.layer.is_mtp == mtp))


def counted(sized: Sizes, recompute: frozenset[str]) -> int:
    block = build(sized, recompute).to(torch.bfloat16)
    for name, buffer in block.named_buffers():
        assert buffer.numel(), name
    arguments = inputs(sized, dtype=torch.bfloat16)
    labels = [argument for argument in arguments if not argument.is_floating_point()]
    products = [module.products for module in block.modules() if getattr(module, "products", None) is not None]
    ignored = [*block.parameters(), *block.buffers(), *labels]
    return kept_bytes(lambda: block(*arguments), ignored, *products)


def check(job: Job, kind: str = "layer", *, mtp: bool = False) -> None:
    unit = unit_of(job, kind, mtp=mtp)
    predicted = sum(predicted_bytes(lower_unit(job, unit), unit.recompute))
    if kind == "head":
        predicted += kept_chunk(job, job.plan.pipeline.layout[-1]).logits
    assert counted(sizes(job, unit), unit.recompute) == predicted


def ids(shape: Mapping[str, int]) -> str:
    return "-".join(f"{name}{value}" for name, value in shape.items())


DENSE_POLICIES = ["none", "full", "per_op", "core_attn", "mlp", "layernorm"]


@pytest.mark.parametrize("policy", DENSE_POLICIES)
@pytest.mark.parametrize("shape", SHAPES, ids=ids)
def test_gated_attention_layer(shape: dict[str, int], policy: str) -> None:
    check(job_of(shape, model(shape), policy))


@pytest.mark.parametrize("policy", DENSE_POLICIES)
@pytest.mark.parametrize("shape", SHAPES[:2], ids=ids)
def test_plain_layer_with_layer_norms(shape: dict[str, int], policy: str) -> None:
    check(job_of(shape, model(shape, activation="gelu", norm="layernorm", position="learned"), policy))


@pytest.mark.parametrize("policy", ["none", "full", "per_op", "core_attn"])
@pytest.mark.parametrize("width", ["head", "full", "weightless"])
@pytest.mark.parametrize("shape", SHAPES, ids=ids)
def test_norms_of_queries_and_keys(shape: dict[str, int], width: str, policy: str) -> None:
    check(job_of(shape, model(shape, qk_norm=True, variant={"qk_norm_width": width}), policy))


@pytest.mark.parametrize("policy", ["none", "full", "core_attn"])
@pytest.mark.parametrize("shape", SHAPES, ids=ids)
def test_a_gate_of_the_attention_output(shape: dict[str, int], policy: str) -> None:
    check(job_of(shape, model(shape, variant={"attention_gate": True}), policy))


MLA = {"q_lora_rank": 96, "kv_lora_rank": 64, "qk_nope_head_dim": 48, "qk_rope_head_dim": 16, "v_head_dim": 64}
"""Query-key and value widths of a head are equal: only then CPU attention takes the fused path."""


@pytest.mark.parametrize("policy", ["none", "full", "core_attn", "mla_up_proj", "mlp", "layernorm"])
@pytest.mark.parametrize("shape", SHAPES[:2], ids=ids)
def test_latent_attention(shape: dict[str, int], policy: str) -> None:
    described = model(shape, mla=MLA)
    del described["num_key_value_heads"], described["head_dim"]
    check(job_of(shape, described, policy))


@pytest.mark.parametrize("policy", ["none", "full", "moe", "core_attn", "layernorm"])
@pytest.mark.parametrize("shared", [0, 256])
@pytest.mark.parametrize("shape", SHAPES[:2], ids=ids)
def test_experts(shape: dict[str, int], shared: int, policy: str) -> None:
    moe = {
        "num_experts": 8,
        "num_experts_per_token": 2,
        "moe_intermediate_size": shape["f"],
        "shared_expert_intermediate_size": shared,
    }
    check(job_of(shape, model(shape, moe=moe), policy))


@pytest.mark.parametrize("policy", ["none", "full"])
@pytest.mark.parametrize("kind", ["mamba2", "gated_deltanet", "lightning"])
@pytest.mark.parametrize("shape", SHAPES[:2], ids=ids)
def test_linear_attention(shape: dict[str, int], kind: str, policy: str) -> None:
    mixer = {"kind": kind, "pattern": "M", "num_heads": 8, "head_dim": 32, "state_dim": 16, "num_groups": 2}
    check(job_of(shape, model(shape, linear_attention=mixer), policy))


@pytest.mark.parametrize("kind", ["embedding", "head"])
@pytest.mark.parametrize("shape", SHAPES, ids=ids)
def test_ends(shape: dict[str, int], kind: str) -> None:
    check(job_of(shape, model(shape)), kind)


@pytest.mark.parametrize("shape", SHAPES[:2], ids=ids)
def test_multi_token_prediction(shape: dict[str, int]) -> None:
    check(job_of(shape, model(shape, num_mtp_layers=1)), mtp=True)


@pytest.mark.parametrize("policy", ["none", "full", "mlp"])
@pytest.mark.parametrize("shape", SHAPES[:2], ids=ids)
def test_a_shard_of_two_with_sequence_parallelism(shape: dict[str, int], policy: str) -> None:
    check(job_of(shape, model(shape), policy, tp=2))


@pytest.mark.parametrize("policy", ["full", "per_op", "core_attn", "mlp", "layernorm"])
def test_recompute_leaves_gradients_alone(policy: str) -> None:
    assert_same_gradients(job_of(SMALL, model(SMALL)), policy)


@pytest.mark.parametrize("policy", ["full", "core_attn", "mla_up_proj", "layernorm"])
def test_recompute_leaves_gradients_of_latent_attention_alone(policy: str) -> None:
    described = model(SMALL, mla=MLA)
    del described["num_key_value_heads"], described["head_dim"]
    assert_same_gradients(job_of(SMALL, described), policy)


def assert_same_gradients(job: Job, policy: str) -> None:
    sized = sizes(job, unit_of(job, "layer"))
    plain = build(sized)
    again = build(sized, frozenset({policy}))
    again.load_state_dict(plain.state_dict())
    for block in (plain, again):
        block(*inputs(sized, dtype=torch.float32)).square().mean().backward()
    for mine, theirs in zip(plain.parameters(), again.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)


@pytest.mark.parametrize("kind", ["mamba2", "gated_deltanet", "lightning"])
def test_a_chunked_scan_is_the_recurrence(kind: str) -> None:
    from windtunnel.measure.torch.blocks.linear_attention import _scan

    torch.manual_seed(0)
    b, s, heads, k_dim, v_dim = 2, 150, 2, 4, 3
    q, k, v = torch.randn(b, s, heads, k_dim), torch.randn(b, s, heads, k_dim) / 2, torch.randn(b, s, heads, v_dim)
    decay, strength = -torch.rand(b, s, heads), torch.rand(b, s, heads)
    delta = kind == "gated_deltanet"
    state, outs = torch.zeros(b, heads, k_dim, v_dim), []
    for t in range(s):
        state = decay[:, t].exp()[..., None, None] * state
        known = torch.einsum("bhk,bhkv->bhv", k[:, t], state) if delta else 0.0
        state = state + strength[:, t, :, None, None] * torch.einsum("bhk,bhv->bhkv", k[:, t], v[:, t] - known)
        outs.append(torch.einsum("bhk,bhkv->bhv", q[:, t], state))
    found, _ = _scan(q, k, v, decay, strength, delta=delta)
    torch.testing.assert_close(found, torch.stack(outs, 1), rtol=1e-4, atol=1e-4)
