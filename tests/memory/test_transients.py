"""What passes: losses by kernel and dtype, dummies, received states, copies, cached blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from windtunnel.job import Job
from windtunnel.memory.kept import kept_chunk
from windtunnel.memory.structure import received_ahead, structures
from windtunnel.projection.memory import project_memory

MakeJob = Callable[[dict[str, Any]], Job]
GIB = 2**30
TOKENS, HIDDEN, VOCAB = 4096, 4096, 128256
LOGITS = TOKENS * VOCAB


def loss(job: Job) -> tuple[float, float, float]:
    """Kept, peak and cached bytes per logit."""
    kept = kept_chunk(job, job.plan.pipeline.layout[-1])
    return kept.logits / LOGITS, (kept.logits + kept.loss_peak) / LOGITS, kept.loss_cached / LOGITS


@pytest.mark.parametrize(
    ("framework", "date", "plan", "expected"),
    [
        ("megatron-core", "2025-06", {}, (4, 6, 0)),
        ("megatron-core", "2025-06", {"logits_dtype": "fp32"}, (4, 8, 0)),
        ("megatron-core", "2025-06", {"fused_cross_entropy": True, "implementation": "native"}, (4, 10, 0)),
        ("megatron-core", "2022-01", {}, (4, 6, 0)),
        ("megatron-core", "2024-02", {}, (4, 10, 0)),
        ("megatron-core", "2025-06", {"fused_cross_entropy": True}, (4, 10, 0)),
        ("megatron-core", "2026-02", {"fused_cross_entropy": True}, (2, 2, 0)),
        ("megatron-core", "2026-02", {"fused_cross_entropy": True, "logits_dtype": "fp32"}, (4, 4, 0)),
        ("megatron-core", "2026-06", {"fused_cross_entropy": True}, (4, 10, 0)),
        ("torchtitan", "2024-12", {}, (4, 12, 2)),
        ("torchtitan", "2024-12", {"logits_dtype": "fp32"}, (4, 12, 0)),
        ("torchtitan", "2025-06", {}, (4, 8, 0)),
        ("torchtitan", "2025-06", {"implementation": "chunked"}, (1, 1 + 4 * HIDDEN / VOCAB, 0)),
        ("torchtitan", "2026-06", {}, (1, 1 + 4 * HIDDEN / VOCAB, 0)),
        ("nanotron", "2024-07", {}, (4, 8, 0)),
    ],
)
def test_bytes_per_logit(
    make_job: MakeJob, framework: str, date: str, plan: dict[str, Any], expected: tuple[float, float, float]
) -> None:
    strategy = "fsdp" if framework == "torchtitan" else "zero1"
    changes = {"software": {"framework": framework, "date": date}, "plan.sharding.strategy": strategy}
    assert loss(make_job({**changes, "plan.loss": plan})) == pytest.approx(expected)


def test_cached_logits_are_reserved_and_not_allocated(make_job: MakeJob) -> None:
    def peak(date: str) -> tuple[float, float]:
        made = make_job({"software": {"framework": "torchtitan", "date": date}, "plan.sharding.strategy": "fsdp"})
        stage = project_memory(made).peak
        return stage.allocated, stage.reserved

    allocated, reserved = peak("2024-12")
    assert reserved == pytest.approx(1.05 * (allocated + 2 * LOGITS))
    later, also = peak("2025-06")
    assert also == pytest.approx(1.05 * later)


def test_cached_blocks_matter_only_at_the_loss(make_job: MakeJob) -> None:
    """Where another moment is the peak by more than they are, they are used again."""
    wide = {"software": {"framework": "torchtitan", "date": "2024-12"}, "plan.sharding.strategy": "fsdp"}
    job = make_job({**wide, "model": {"base": "llama3.1-8b", "vocab_size": 1024}})
    assert structures(job)[0].cached == 0


def test_expandable_segments_leave_little_behind(make_job: MakeJob) -> None:
    small = {"plan.parallel": {"tp": 2, "pp": 1}}
    default, expandable = (
        project_memory(make_job({**small, "software.allocator": kind})).peak
        for kind in ("default", "expandable_segments")
    )
    assert default.allocated == expandable.allocated
    assert default.reserved == pytest.approx(1.04 * default.allocated)
    assert expandable.reserved == pytest.approx(1.01 * expandable.allocated)


def test_the_dummy_gradient_of_the_head_is_gone_before_the_layers(make_job: MakeJob) -> None:
    job = make_job({})
    loss_moment, backward = (
        next(c for c in structures(job)[0].candidates if c.moment == moment) for moment in ("loss", "backward")
    )
    assert loss_moment.passing == 2 * VOCAB * HIDDEN
    assert backward.passing < loss_moment.passing


@pytest.mark.parametrize(("held", "sides"), [((0,), 1), ((1,), 2), ((3,), 1), ((0, 2), 3)])
def test_a_torch_stage_allocates_what_it_will_receive(make_job: MakeJob, held: tuple[int, ...], sides: int) -> None:
    """Inputs from before and gradients from behind, for every micro-batch."""
    pipeline = {
        "software": {"framework": "torchtitan", "date": "2025-06"},
        "plan.sharding.strategy": "fsdp",
        "plan.parallel": {"pp": 4},
        "plan.pipeline": {"schedule": "1f1b"},
    }
    job = make_job(pipeline)
    assert job.plan.num_microbatches == 32
    assert received_ahead(job, held) == 32 * sides * 2 * TOKENS * HIDDEN
    assert received_ahead(make_job({"plan.parallel": {"pp": 4}}), held) == 0


def test_nanotron_copies_attention_outputs_of_several_sequences(make_job: MakeJob) -> None:
    software = {"software": {"framework": "nanotron", "date": "2024-07"}}

    def kept(size: int, length: int) -> float:
        batch = {"micro_batch_size": size, "global_batch_size": 64, "sequence_length": length}
        job = make_job({**software, "plan.batch": batch})
        return kept_chunk(job, job.plan.pipeline.layout[0]).activations

    assert kept(2, 2048) - kept(1, 4096) == pytest.approx(32 * 2 * TOKENS * HIDDEN)


def test_a_recipe_of_the_framework_sets_precision(make_job: MakeJob) -> None:
    def precision(framework: str, model: str) -> tuple[str, str]:
        job = make_job({"software": {"framework": framework, "date": "2026-01"}, "model": model})
        return job.plan.precision.grads, job.plan.precision.optimizer_state

    assert precision("megatron-bridge", "moonlight-16b-a3b") == ("bf16", "bf16")
    assert precision("megatron-bridge", "qwen3-30b-a3b") == ("bf16", "fp32")
    assert precision("megatron-bridge", "llama3.1-8b") == ("fp32", "fp32")
    assert precision("megatron-core", "moonlight-16b-a3b") == ("fp32", "fp32")


def test_fsdp_reduces_embedding_and_head_last(make_job: MakeJob) -> None:
    """2 bytes of gradient and 4 of the reduction's input; the peak where a micro-batch is tiny."""
    tiny = {"micro_batch_size": 1, "global_batch_size": 64, "sequence_length": 128}
    software = {"framework": "torchtitan", "date": "2025-06"}
    job = make_job({"software": software, "plan.sharding.strategy": "fsdp", "plan.batch": tiny})
    last = next(c for c in structures(job)[0].candidates if c.moment == "gradient_reduction")
    assert last.passing == 6 * (2 * VOCAB * HIDDEN + HIDDEN)
    assert project_memory(job).peak.moment == "gradient_reduction"
