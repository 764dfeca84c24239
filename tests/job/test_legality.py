"""Each rule on its own, and repairs that are real: set on the job they remove the violation."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windtunnel.catalog.jobs import legal, load_draft, load_job
from windtunnel.errors import LegalityError
from windtunnel.job.legality import RULES, violations

MOE = "qwen3-30b-a3b"
TITAN = {"framework": "torchtitan", "date": "2026-06"}
ENDS = {"count_embedding": True, "count_head": True}


def job(world: int = 8, **sections: Any) -> dict[str, Any]:
    """A legal job of ``world`` H100, with paths such as ``plan__parallel={...}`` laid over it."""
    mapping: dict[str, Any] = {
        "model": "llama3.1-8b",
        "cluster": {"accelerator": "h100-sxm-80gb", "num_accelerators": world},
        "software": {"framework": "megatron-core", "date": "2026-08"},
        "plan": {"batch": {"micro_batch_size": 1, "global_batch_size": 16 * world, "sequence_length": 8192}},
    }
    for path, value in sections.items():
        section, _, key = path.partition("__")
        if key:
            below = mapping[section].get(key, {}) if isinstance(value, dict) else {}
            mapping[section] = {**mapping[section], key: {**below, **value} if isinstance(value, dict) else value}
        else:
            mapping[section] = value
    return mapping


BROKEN: list[tuple[str, dict[str, Any]]] = [
    ("dense-grid", job(12, plan__parallel={"tp": 8})),
    ("dense-grid", job(8, plan__parallel={"tp": 2, "dp": 3})),
    ("expert-grid", job(8, model=MOE, plan__parallel={"tp": 4, "ep": 8})),
    ("expert-grid-order", job(16, model=MOE, plan__parallel={"pp": 2, "ep": 2, "etp": 1, "order": "tp-cp-ep-pp-dp"})),
    ("shard-size", job(8, plan__sharding={"strategy": "fsdp", "shard_size": 3})),
    ("fabric", job(16, cluster__scale_out={"kind": "none"})),
    ("stages-layers", job(64, plan__parallel={"pp": 64})),
    ("layers-pp", job(24, plan__parallel={"pp": 3})),
    ("layers-vpp", job(8, plan__parallel={"pp": 4}, plan__pipeline={"virtual_stages": 3})),
    ("layers-vpp", job(8, software=TITAN, plan__parallel={"pp": 2}, plan__pipeline={"virtual_stages": 3, **ENDS})),
    ("layers-pp", job(8, software=TITAN, plan__parallel={"pp": 4}, plan__pipeline=ENDS)),
    ("vpp-needs-pp", job(8, plan__pipeline={"virtual_stages": 2})),
    ("uneven-vs-account", job(8, plan__parallel={"pp": 4}, plan__pipeline={
        "first_stage_layers": 7, "last_stage_layers": 7, "count_embedding": True})),
    ("layout", job(8, plan__parallel={"pp": 2}, plan__pipeline={"layout": "Et*16|t*15L"})),
    ("layers-per-stage", job(8, plan__parallel={"pp": 2}, plan__pipeline={"layers_per_stage": [16, 15]})),
    ("layers-per-stage", job(8, plan__parallel={"pp": 2}, plan__pipeline={"layers_per_stage": [8, 8, 16]})),
    ("uneven-first-last", job(8, plan__parallel={"pp": 4}, plan__pipeline={"first_stage_layers": 6})),
    ("interleaved-m", job(4, plan__parallel={"pp": 4}, plan__batch={"global_batch_size": 6},
                          plan__pipeline={"virtual_stages": 2})),
    ("microbatches-stages", job(8, software={"framework": "torchtitan"}, plan__parallel={"pp": 8},
                                plan__batch={"global_batch_size": 4})),
    ("too-many-microbatches", job(8, plan__parallel={"pp": 8}, plan__batch={"global_batch_size": 8_000_000})),
    ("gbs", job(8, plan__batch={"global_batch_size": 12})),
    ("gbs", job(8, plan__batch={"micro_batch_size": 3, "global_batch_size": 16})),
    ("sequence-length", job(8, plan__parallel={"cp": 8}, plan__batch={"sequence_length": 1000})),
    ("heads-tp", job(3, plan__parallel={"tp": 3})),
    ("gqa-tp", job(6, model={"base": "llama3.1-8b", "num_attention_heads": 24, "head_dim": 128,
                             "hidden_size": 3072, "intermediate_size": 6144}, plan__parallel={"tp": 6})),
    ("widths-tp", job(4, model={"base": "llama3.1-8b", "intermediate_size": 14338}, plan__parallel={"tp": 4})),
    ("expert-width-etp", job(16, model={"base": MOE, "moe": {"moe_intermediate_size": 1001}},
                             plan__parallel={"tp": 2, "etp": 2})),
    ("ulysses-heads", job(64, plan__parallel={"cp": 64}, plan__context_parallel={"kind": "ulysses"})),
    ("recompute", job(plan__recompute={"policy": "block"})),
    ("recompute", job(plan__recompute={"policy": "modules"})),
    ("recompute", job(plan__recompute={"policy": "block", "layers": [0, 32]})),
    ("experts-ep", job(8, model=MOE, plan__parallel={"ep": 3})),
    ("experts-ep", job(8, plan__parallel={"ep": 8})),
    ("etp-needs-experts", job(8, plan__parallel={"etp": 2})),
    ("moe-sp", job(8, model=MOE, plan__parallel={"tp": 2, "etp": 1, "sequence_parallel": False})),
    ("ep-a2a-overlap", job(8, model=MOE, plan__overlap={"ep_comm": True})),
    ("delay-wgrad", job(8, plan__overlap={"delay_wgrad": True})),
    ("tp-overlap", job(8, plan__parallel={"tp": 2, "sequence_parallel": False}, plan__overlap={"tp_comm": True})),
    ("overlap-param-gather", job(plan__sharding={"strategy": "ddp"}, plan__overlap={"param_gather": True})),
    ("fp8-param-gather", job(plan__sharding={"strategy": "ddp"}, plan__precision={"params": "fp8"})),
    ("optimizer-offload", job(plan__sharding={"strategy": "ddp"}, plan__offload={"optimizer": "cpu"})),
    ("act-offload", job(8, plan__parallel={"pp": 2}, plan__offload={"activations": 0.5})),
    ("offload-modules", job(plan__offload={"modules": ["attn_proj"]})),
    ("offload-modules", job(8, model=MOE, plan__offload={"modules": ["moe_act", "attn_norm"]},
                            plan__recompute={"policy": "modules", "modules": ["moe"]})),
    ("te-cross-entropy", job(software__date="2026-06", plan__loss={"fused_cross_entropy": True,
                                                                   "implementation": "te"})),
    ("full-recompute-graphs", job(software__cuda_graphs="partial", plan__recompute={"policy": "full"})),
    ("selective-method", job(plan__recompute={"policy": "selective", "num_layers": 2})),
    ("compute-peak", job(cluster__accelerator="a100-sxm-80gb", plan__precision={"compute": "fp8_delayed"})),
    ("compute-peak", job(plan__precision={"compute": "mxfp8"})),
    ("attention-vendor", job(software__attention="aiter")),
    ("zero-pipeline", job(8, software={"framework": "deepspeed"}, plan__parallel={"pp": 2},
                          plan__sharding={"strategy": "zero3"})),
]  # fmt: skip


def ids(mapping: dict[str, Any], **changes: Any) -> set[str]:
    return {found.rule for found in violations(load_draft(mapping, set=changes)) if found.severity == "error"}


def test_the_plain_job_is_legal() -> None:
    assert ids(job()) == set()
    assert load_job(job()).plan.parallel.dp == 8


@pytest.mark.parametrize(("rule", "mapping"), BROKEN, ids=lambda value: value if isinstance(value, str) else "")
def test_rule_refuses_and_its_repairs_are_real(rule: str, mapping: dict[str, Any]) -> None:
    draft = load_draft(mapping)
    found = {violation.rule: violation for violation in violations(draft)}
    assert rule in found
    violation = found[rule]
    assert violation.severity == "error"
    assert violation.path in str(violation.values) or violation.path.startswith("plan.")
    for repair in violation.repairs:
        assert rule not in ids(mapping, **repair.changes), repair
    with pytest.raises(LegalityError) as refused:
        legal(draft)
    assert all(fault.path and fault.rule and fault.remedy for fault in refused.value.faults)


def test_almost_every_rule_offers_a_repair() -> None:
    found = [(rule, violations(load_draft(mapping))) for rule, mapping in BROKEN]
    assert {rule for rule, all_found in found for one in all_found if one.rule == rule and not one.repairs} == set()


def test_all_violations_are_reported_at_once() -> None:
    mapping = job(
        12, plan__parallel={"tp": 5}, plan__precision={"compute": "nvfp4"}, plan__recompute={"policy": "block"}
    )
    assert ids(mapping) >= {"dense-grid", "heads-tp", "compute-peak", "recompute"}


def test_learned_positions_warn() -> None:
    mapping = job(
        model={"base": "gpt3-175b", "max_position_embeddings": 2048}, plan__parallel={"tp": 8},
        plan__batch={"sequence_length": 4096},
    )  # fmt: skip
    assert any("learned positions" in warning for warning in load_job(mapping).warnings)


@pytest.mark.parametrize(
    ("framework", "vocab", "tp", "warns"),
    [
        ("torchtitan", 50257, 1, True),
        ("torchtitan", 50304, 1, False),
        ("torchtitan", 128256, 8, False),
        ("torchtitan", 50264, 2, True),
        ("megatron-core", 50257, 2, False),
    ],
)
def test_a_vocabulary_that_is_not_aligned_warns(framework: str, vocab: int, tp: int, warns: bool) -> None:
    mapping = job(
        8, model={"base": "llama3.1-8b", "vocab_size": vocab}, software={"framework": framework},
        plan__parallel={"tp": tp},
    )  # fmt: skip
    found = {violation.rule: violation for violation in violations(load_draft(mapping))}
    assert ("vocab-alignment" in found) is warns
    if warns:
        assert found["vocab-alignment"].severity == "warning"
        assert f"set model.vocab_multiple = {8 * tp}" in found["vocab-alignment"].message
        mapping["model"]["vocab_multiple"] = 8 * tp
        assert "vocab-alignment" not in {violation.rule for violation in violations(load_draft(mapping))}


@pytest.mark.parametrize("date", ["2024-06", "2025-11", "2026-08"])
def test_layers_are_not_offloaded_beside_a_pipeline_in_any_year(date: str) -> None:
    mapping = job(8, software__date=date, plan__parallel={"pp": 2}, plan__offload={"activations": 0.5})
    assert ids(mapping) == {"act-offload"}
    mapping["plan"]["offload"] = {"modules": ["moe_act", "expert_fc1"]}
    assert ids(mapping) == set()


def test_rules_are_named_once_in_what_they_answer() -> None:
    names = [rule.__name__ for rule in RULES]
    assert len(names) == len(set(names))


FRAMEWORKS = ["megatron-core", "torchtitan", "nanotron", "maxtext"]
DEGREES = st.sampled_from([1, 2, 3, 4, 5, 6, 8, 12, 16])


@settings(max_examples=150, deadline=None)
@given(tp=DEGREES, cp=DEGREES, pp=DEGREES, ep=DEGREES, etp=st.sampled_from([None, 1, 2, 4]),
       world=st.integers(1, 96), batch=st.integers(1, 512), size=st.integers(1, 6), v=st.integers(1, 5),
       moe=st.booleans(), framework=st.sampled_from(FRAMEWORKS))  # fmt: skip
def test_random_plans_build_or_are_refused(
    tp: int, cp: int, pp: int, ep: int, etp: int | None, world: int, batch: int, size: int, v: int, moe: bool,
    framework: str,
) -> None:  # fmt: skip
    """A legal plan has whole numbers everywhere; an illegal one repairs that each remove their violation."""
    parallel = {"tp": tp, "cp": cp, "pp": pp, "ep": ep, **({"etp": etp} if etp else {})}
    mapping = job(
        world, model=MOE if moe else "llama3.1-8b", software={"framework": framework}, plan__parallel=parallel,
        plan__pipeline={"virtual_stages": v}, plan__batch={"micro_batch_size": size, "global_batch_size": batch},
    )  # fmt: skip
    draft = load_draft(mapping)
    errors = [violation for violation in violations(draft) if violation.severity == "error"]
    if not errors:
        built = legal(draft).plan
        assert built.parallel.world == world
        assert built.num_microbatches * size * built.parallel.dp == batch
        assert (built.parallel.tp * built.parallel.cp * built.parallel.dp) % (
            built.parallel.ep * built.parallel.etp
        ) == 0
        assert len(built.pipeline.layout) == pp * v
        layers = [layer for chunk in built.pipeline.layout for layer in chunk.layers]
        assert layers == list(range(draft.model.num_layers))
        assert len(built.recompute) == draft.model.num_layers
    for violation in errors[:2]:
        for repair in violation.repairs[:2]:
            assert violation.rule not in ids(mapping, **repair.changes), (violation, repair)
