"""Where a value comes from, strongest first; and what a change on the command line makes stale."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from windtunnel.catalog.jobs import job_from_mapping, load_draft, load_job
from windtunnel.catalog.models import find_model, model_to_mapping
from windtunnel.errors import FormatError, LegalityError, MissingError
from windtunnel.job.job import Job, Origin
from windtunnel.job.plan import Chunk

PLAN: dict[str, Any] = {"batch": {"micro_batch_size": 1, "global_batch_size": 128, "sequence_length": 8192}}


def mapping(framework: str = "megatron-core", world: int = 64, **plan: Any) -> dict[str, Any]:
    return {
        "model": "llama3.1-70b",
        "cluster": {"accelerator": "h100-sxm-80gb", "num_accelerators": world},
        "software": {"framework": framework},
        "plan": {**PLAN, **plan},
    }


def origin(job: Job, path: str) -> Origin:
    (found,) = [entry for entry in job.origin if entry.path == path]
    return found


def test_levels_from_strongest_to_weakest() -> None:
    silent = mapping("nemo", parallel={"tp": 4})
    by_framework = load_job(silent)
    assert by_framework.plan.overlap.tp_comm
    assert origin(by_framework, "plan.overlap.tp_comm").level == "software"
    assert origin(by_framework, "plan.overlap.tp_comm").why
    assert origin(by_framework, "plan.parallel.dp") == Origin(
        "plan.parallel.dp", 16, "derived", "num_accelerators / (tp · cp · pp)"
    )
    assert origin(by_framework, "plan.optimizer").level in ("neutral", "software")
    spoken = mapping("nemo", parallel={"tp": 4}, overlap={"tp_comm": False})
    assert not load_job(spoken).plan.overlap.tp_comm
    assert all(entry.path != "plan.overlap.tp_comm" for entry in load_job(spoken).origin)
    assert load_job(spoken, set=["plan.overlap.tp_comm=true"]).plan.overlap.tp_comm


def test_set_is_as_strong_as_a_flag_and_stronger_when_both_speak() -> None:
    job = load_job(mapping(), flags={"plan.parallel.tp": 2}, set={"plan.parallel.tp": 8})
    assert job.plan.parallel.tp == 8


def test_flags_alone_make_a_job() -> None:
    flags = {
        "model": "llama3.1-70b",
        "cluster.accelerator": "h100-sxm-80gb",
        "cluster.num_accelerators": 64,
        "plan.parallel.tp": 4,
        "plan.parallel.pp": 4,
        "plan.batch.micro_batch_size": 1,
        "plan.batch.global_batch_size": 128,
        "plan.batch.sequence_length": 8192,
    }
    assert load_job(None, flags=flags).plan.parallel.dp == 4


def test_standard_input_is_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(mapping())))
    assert load_job("-") == load_job(mapping()) == job_from_mapping(mapping())


def test_derived_and_neutral_values() -> None:
    plan = load_job(mapping(parallel={"tp": 4, "pp": 4})).plan
    assert plan.parallel.sequence_parallel
    assert plan.pipeline.schedule == "1f1b"
    assert plan.pipeline.microbatch_group_size == 4
    assert plan.pipeline.layout == tuple(
        Chunk(layers=tuple(range(20 * i, 20 * i + 20)), embedding=i == 0, head=i == 3) for i in range(4)
    )
    assert plan.sharding.shard_size == 4
    assert (plan.precision.compute, plan.precision.params, plan.precision.master) == ("bf16", "bf16", "fp32")
    assert plan.context_parallel.ulysses_size == 1
    assert plan.recompute == (frozenset(),) * 80
    assert plan.num_microbatches == 32


def test_more_chunks_interleave() -> None:
    plan = load_job(mapping(parallel={"pp": 4}, pipeline={"virtual_stages": 5})).plan
    assert plan.pipeline.schedule == "interleaved_1f1b"
    assert len(plan.pipeline.layout) == 20


@pytest.mark.parametrize("schedule", ["zbv", "v_half", "v_min"])
def test_v_schedules_have_two_chunks_a_stage(schedule: str) -> None:
    plan = load_job(mapping(parallel={"pp": 4}, pipeline={"schedule": schedule})).plan
    assert plan.pipeline.virtual_stages == 2


def test_a_layout_says_how_many_chunks_there_are() -> None:
    plan = load_job(mapping(parallel={"pp": 4}, pipeline={"layout": "Et*10|(t*10|)*6t*10L"})).plan
    assert plan.pipeline.virtual_stages == 2
    assert plan.pipeline.schedule == "interleaved_1f1b"


def test_narrow_compute_narrows_parameters_and_fp32_needs_no_master() -> None:
    assert load_job(mapping(precision={"compute": "fp16"})).plan.precision.params == "fp16"
    assert load_job(mapping(precision={"params": "fp32"})).plan.precision.master == "none"


def test_sequence_parallelism_is_off_at_tp_1() -> None:
    job = load_job(mapping(parallel={"tp": 1, "sequence_parallel": True}))
    assert not job.plan.parallel.sequence_parallel
    assert any("sequence_parallel" in warning for warning in job.warnings)


def test_hsdp_shards_over_the_ranks_of_a_node() -> None:
    assert load_job(mapping("torchtitan", sharding={"strategy": "hsdp"})).plan.sharding.shard_size == 8
    assert load_job(mapping(parallel={"tp": 4}, sharding={"strategy": "hsdp"})).plan.sharding.shard_size == 2


def test_ulysses_takes_the_group_or_its_part_in_one_node() -> None:
    both = {"parallel": {"tp": 2, "cp": 16}}
    ring = mapping(**both, context_parallel={"kind": "ring_ulysses"})
    assert load_job(ring).plan.context_parallel.ulysses_size == 4
    whole = mapping(parallel={"cp": 16}, context_parallel={"kind": "ulysses"})
    assert load_job(whole).plan.context_parallel.ulysses_size == 16


def test_skewed_routing_without_a_value_is_taken_as_balanced_and_said() -> None:
    job = load_job({**mapping(moe={"routing": "skewed"}), "model": "qwen3-30b-a3b"})
    assert job.plan.moe.imbalance == 1.0
    assert any("imbalance" in warning for warning in job.warnings)
    told = load_job({**mapping(moe={"routing": "skewed", "imbalance": 1.2}), "model": "qwen3-30b-a3b"})
    assert told.warnings == ()


def test_attention_auto_is_the_frameworks_choice_for_the_vendor() -> None:
    assert load_job(mapping("torchtitan")).software.attention == "sdpa"
    auto = load_job({**mapping("primus"), "software": {"framework": "primus", "attention": "auto"}})
    assert auto.software.attention == "te-fused"
    assert origin(auto, "software.attention").level == "software"
    amd = mapping("primus")
    amd["cluster"]["accelerator"] = "mi355x"
    assert load_job(amd).software.attention == "aiter"
    unknown = mapping("primus")
    unknown["cluster"]["accelerator"] = {"base": "h200-sxm-141gb", "name": "x1", "vendor": "acme"}
    assert load_job(unknown).software.attention == "sdpa"


def test_the_cluster_is_filled_from_the_catalog_and_overridden() -> None:
    job = mapping()
    job["cluster"] |= {"hbm_capacity": "70 GiB", "power_cap": "500 W", "scale_up": {"bandwidth": "225 GB/s"}}
    cluster = load_job(job).cluster
    plain = load_job(mapping()).cluster
    assert cluster.accelerator.hbm_capacity == 70 * 2**30
    assert cluster.accelerator.gemm.bf16 < plain.accelerator.gemm.bf16
    assert cluster.scale_up.bandwidth == 225e9
    assert cluster.scale_up.domain_size == plain.scale_up.domain_size
    assert origin(load_job(job), "cluster.scale_up.domain_size").level == "neutral"


def test_a_small_job_may_be_smaller_than_a_node() -> None:
    assert load_job(mapping(world=2)).cluster.accelerators_per_node == 8


def test_learned_positions_cover_the_sequence() -> None:
    inline = {**model_to_mapping(find_model("gpt3-175b"))}
    inline.pop("max_position_embeddings", None)
    job = load_job({**mapping(parallel={"tp": 8}), "model": inline})
    assert job.model.max_position_embeddings == 8192


def test_a_base_takes_changes_and_paths_reach_into_a_name() -> None:
    job = load_job(mapping(), set=["model.num_layers=40", "cluster.accelerator.hbm_capacity=64 GiB"])
    assert job.model.num_layers == 40
    assert job.model.hidden_size == 8192
    assert job.cluster.accelerator.hbm_capacity == 64 * 2**30
    moe = load_job({**mapping(), "model": "qwen3-30b-a3b"}, set=["model.moe.num_experts_per_token=4"])
    assert moe.model.moe is not None
    assert (moe.model.moe.num_experts, moe.model.moe.num_experts_per_token) == (128, 4)


def test_a_model_file_is_found_beside_the_job(tmp_path: Path) -> None:
    config = {
        "model_type": "llama", "num_hidden_layers": 4, "hidden_size": 512, "vocab_size": 1000, "num_attention_heads": 8,
        "num_key_value_heads": 8, "intermediate_size": 1024, "hidden_act": "silu",
        "architectures": ["LlamaForCausalLM"],
    }  # fmt: skip
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text(json.dumps(config))
    (tmp_path / "job.json").write_text(json.dumps({**mapping(world=8), "model": "tiny/config.json"}))
    assert load_job(tmp_path / "job.json").model.num_layers == 4
    assert load_job(tmp_path / "job.json", set=["model.num_layers=6"]).model.num_layers == 6


def test_unused_widths_are_noted() -> None:
    model = {**model_to_mapping(find_model("qwen3-30b-a3b")), "intermediate_size": 6144}
    assert any("ignored" in warning for warning in load_job({**mapping(), "model": model}).warnings)


GRID = mapping(parallel={"tp": 4, "pp": 4, "dp": 4}, pipeline={"virtual_stages": 5}, sharding={"shard_size": 4})


def test_followers_are_derived_anew_with_a_note() -> None:
    job = load_job(GRID, set=["plan.parallel.tp=8"])
    assert (job.plan.parallel.dp, job.plan.sharding.shard_size) == (2, 2)
    assert job.plan.batch.global_batch_size == 128
    assert any(note.startswith("plan.parallel.dp = 4 of the file is derived anew") for note in job.warnings)


def test_a_change_to_the_same_value_changes_nothing() -> None:
    assert load_job(GRID, set=["plan.parallel.tp=4", "plan.parallel.cp=1"]).warnings == ()


def test_a_section_set_as_a_whole_counts_by_its_values() -> None:
    job = load_job(GRID, set=["plan.parallel={tp: 8, pp: 4}"])
    assert (job.plan.parallel.dp, job.plan.sharding.shard_size) == (2, 2)
    assert load_job(GRID, set=["plan.parallel={pp: 4, dp: 16}"]).plan.parallel.tp == 1


def test_what_the_command_sets_too_stays() -> None:
    with pytest.raises(LegalityError, match="must equal"):
        load_job(GRID, set=["plan.parallel.tp=8", "plan.parallel.dp=4"])
    kept = load_job(GRID, set=["plan.parallel.tp=8", "plan.parallel.dp=2", "plan.sharding.shard_size=1"])
    assert kept.plan.sharding.shard_size == 1


@pytest.mark.parametrize(("pp", "stages"), [(1, 1), (2, 5), (8, 5), (16, 5), (5, 4)])
def test_virtual_stages_follow_pp(pp: int, stages: int) -> None:
    """80 layers: the most chunks up to the file's 5 that still divide."""
    draft = load_draft(
        mapping(world=80, parallel={"pp": 4}, pipeline={"virtual_stages": 5}), set={"plan.parallel.pp": pp}
    )
    assert draft.plan["pipeline.virtual_stages"] == stages


def test_a_layout_is_dropped_when_the_stages_change() -> None:
    file = mapping(parallel={"pp": 4}, pipeline={"layout": "Et*10|(t*10|)*6t*10L", "schedule": "interleaved_1f1b"})
    assert load_job(file).warnings == ()
    job = load_job(file, set=["plan.parallel.pp=2"])
    assert len(job.plan.pipeline.layout) == 4
    assert any("plan.pipeline.layout" in note for note in job.warnings)
    one = load_job(file, set=["plan.parallel.pp=1"])
    assert one.plan.pipeline.schedule == "1f1b"


def test_a_new_schedule_brings_its_chunks() -> None:
    file = mapping(parallel={"pp": 4}, pipeline={"virtual_stages": 5, "schedule": "interleaved_1f1b"})
    assert load_job(file, set=["plan.pipeline.schedule=zbv"]).plan.pipeline.virtual_stages == 2
    assert load_job(file, set=["plan.pipeline.schedule=1f1b"]).plan.pipeline.virtual_stages == 1
    plain = mapping(parallel={"pp": 4}, pipeline={"schedule": "1f1b", "virtual_stages": 1})
    assert load_job(plain, set=["plan.pipeline.schedule=interleaved_1f1b"]).plan.pipeline.virtual_stages == 2


def test_counts_per_stage_follow_pp_and_the_model() -> None:
    file = mapping(parallel={"pp": 2}, pipeline={"layers_per_stage": [38, 42]})
    assert [len(chunk.layers) for chunk in load_job(file).plan.pipeline.layout] == [38, 42]
    assert [len(chunk.layers) for chunk in load_job(file, set=["plan.parallel.pp=4"]).plan.pipeline.layout] == [20] * 4
    assert len(load_job(file, set=["model.num_layers=40"]).plan.pipeline.layout[0].layers) == 20
    ends = mapping(parallel={"pp": 4}, pipeline={"first_stage_layers": 18, "last_stage_layers": 18})
    assert [len(chunk.layers) for chunk in load_job(ends).plan.pipeline.layout] == [18, 22, 22, 18]
    assert load_job(ends, set=["plan.parallel.pp=2"]).plan.pipeline.layout[0].layers == tuple(range(40))


def test_scale_batch_keeps_the_batch_per_replica() -> None:
    assert load_job(GRID, set=["cluster.num_accelerators=128"]).plan.batch.global_batch_size == 128
    grown = load_job(GRID, set=["cluster.num_accelerators=128"], scale_batch=True)
    assert (grown.plan.parallel.dp, grown.plan.batch.global_batch_size) == (8, 256)
    assert grown.plan.num_microbatches == load_job(GRID).plan.num_microbatches
    told = load_job(GRID, set=["cluster.num_accelerators=128", "plan.batch.global_batch_size=512"], scale_batch=True)
    assert told.plan.batch.global_batch_size == 512


def test_scale_batch_refuses_a_batch_that_is_no_multiple() -> None:
    odd = mapping(parallel={"tp": 4, "pp": 4})
    odd["plan"]["batch"] = {**PLAN["batch"], "global_batch_size": 130}
    with pytest.raises(FormatError, match="per replica"):
        load_job(odd, set=["cluster.num_accelerators=128"], scale_batch=True)


def test_custom_orders_come_from_a_file_or_in_place(tmp_path: Path) -> None:
    rows = [["F0.0", "B0.0", "W0.0"], ["F0.0", "B0.0", "W0.0"]]
    (tmp_path / "orders.json").write_text(json.dumps({"name": "mine", "orders": rows}))
    plan: dict[str, Any] = {"parallel": {"pp": 2}}
    one = {**PLAN["batch"], "global_batch_size": 32}
    named = mapping(**plan, batch=one, pipeline={"schedule": "custom", "orders": "orders.json"})
    placed = mapping(**plan, batch=one, pipeline={"schedule": "custom", "orders": rows})
    assert load_draft(named, base_dir=tmp_path).orders == load_draft(placed).orders == tuple(map(tuple, rows))
    (tmp_path / "orders.json").write_text("{}")
    with pytest.raises(FormatError, match="orders is due"):
        load_draft(named, base_dir=tmp_path)


def test_an_illegal_job_loads_as_a_draft() -> None:
    draft = load_draft(mapping(parallel={"tp": 5}))
    assert draft.plan["parallel.dp"] is None
    assert draft.plan["sharding.shard_size"] is None
    with pytest.raises(LegalityError):
        load_job(mapping(parallel={"tp": 5}))


@pytest.mark.parametrize("length", [131072, 1048576])
def test_long_context_of_a_405b_model(length: int) -> None:
    file = mapping(
        world=1024,
        parallel={"tp": 8, "cp": 16, "pp": 8},
        batch={**PLAN["batch"], "sequence_length": length},
        pipeline={"count_embedding": True, "count_head": True},
    )
    job = load_job({**file, "model": "llama3.1-405b"})
    assert [len(chunk.layers) for chunk in job.plan.pipeline.layout] == [15, *[16] * 6, 15]


def test_an_unknown_date_or_framework_is_missing() -> None:
    with pytest.raises(MissingError, match="before"):
        load_job({**mapping(), "software": {"framework": "megatron-core", "date": "1999-01"}})
