"""Peak memory by walking the order: in-flight counts, what recompute saves, where the loss sits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from windtunnel.job import Job
from windtunnel.memory.kept import kept_chunk, placeholder_bytes, stage_units
from windtunnel.memory.structure import structures
from windtunnel.projection.memory import project_memory

MakeJob = Callable[[dict[str, Any]], Job]

PIPELINE = {
    "cluster.num_accelerators": 32,
    "plan.parallel": {"tp": 1, "pp": 4},
    "plan.batch": {"micro_batch_size": 1, "global_batch_size": 64, "sequence_length": 4096},
}


def test_stages_of_1f1b_hold_p_minus_r_micro_batches(make_job: MakeJob) -> None:
    job = make_job(PIPELINE)
    assert [max(c.in_flight for c in stage.candidates) for stage in structures(job)] == [4, 3, 2, 1]


def test_activations_are_in_flight_times_kept(make_job: MakeJob) -> None:
    job = make_job(PIPELINE)
    first = structures(job)[0]
    kept = kept_chunk(job, job.plan.pipeline.layout[0])
    assert max(c.activations for c in first.candidates) == 4 * kept.activations


def test_parameters_of_stages_sum_to_the_padded_model(make_job: MakeJob) -> None:
    job = make_job(PIPELINE)
    assert sum(stage.parameters.total for stage in structures(job)) == 8_030_261_248  # 128256 needs no padding at tp 1


def test_the_loss_belongs_to_the_last_stage(make_job: MakeJob) -> None:
    stages = project_memory(make_job(PIPELINE)).stages
    found = structures(make_job(PIPELINE))
    assert [any(c.logits for c in stage.candidates) for stage in found] == [False, False, False, True]
    assert stages[3].in_flight in (0, 1)


def test_native_loss_peaks_at_six_bytes_a_logit(make_job: MakeJob) -> None:
    job = make_job({})
    kept = kept_chunk(job, job.plan.pipeline.layout[0])
    assert kept.logits + kept.loss_peak == 6 * 4096 * 128256


def test_placeholders_of_405b_at_tp_1_take_six_gib(make_job: MakeJob) -> None:
    """One bf16 tensor per distinct matrix shape; the head of the last stage comes on top."""
    job = make_job(
        {"model": "llama3.1-405b", "cluster.num_accelerators": 126 * 8, "plan.parallel": {"tp": 1, "pp": 126}}
    )
    middle = job.plan.pipeline.layout[60:61]
    assert placeholder_bytes(job, stage_units(job, middle)) / 2**30 == pytest.approx(5.94, abs=0.05)


@pytest.mark.parametrize("policy", ["full", "selective"])
def test_recompute_never_needs_more(make_job: MakeJob, policy: str) -> None:
    plain = project_memory(make_job(PIPELINE)).peak.allocated
    assert project_memory(make_job({**PIPELINE, "plan.recompute": {"policy": policy}})).peak.allocated <= plain


def test_classes_sum_to_allocated_and_device_holds_them(make_job: MakeJob) -> None:
    for stage in project_memory(make_job(PIPELINE)).stages:
        parts = (
            stage.weights, stage.gradients, stage.master, stage.moments, stage.activations, stage.logits,
            stage.buffers, stage.dispatcher,
        )  # fmt: skip
        assert sum(parts) == stage.allocated
        assert stage.allocated <= stage.reserved <= stage.device


def test_offloaded_activations_wait_in_host_memory(make_job: MakeJob) -> None:
    plain = project_memory(make_job({}))
    half = project_memory(make_job({"plan.offload": {"activations": 0.5}}))
    assert half.host > 0
    assert half.peak.activations < plain.peak.activations
