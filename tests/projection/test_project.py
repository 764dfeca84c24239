"""The pipeline as a whole: parts that sum, identities of its answers, what must not change a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from windtunnel.job import Job, Run
from windtunnel.projection.compare import compare
from windtunnel.projection.elasticity import elasticity
from windtunnel.projection.flops import flops_per_token
from windtunnel.projection.project import project
from windtunnel.projection.result import Projection

MakeJob = Callable[[dict[str, Any]], Job]

VARIANTS: dict[str, dict[str, Any]] = {
    "one accelerator": {"cluster.num_accelerators": 1, "plan.sharding.strategy": "ddp", "model": "llama3.2-1b"},
    "tensor parallel": {"plan.parallel.tp": 4},
    "no sequence parallel": {"plan.parallel": {"tp": 4, "sequence_parallel": False}},
    "context parallel": {"plan.parallel.cp": 4, "plan.batch.sequence_length": 32768},
    "pipeline": {"plan.parallel": {"tp": 1, "pp": 4}},
    "interleaved": {"plan.parallel": {"tp": 1, "pp": 4}, "plan.pipeline": {"virtual_stages": 2}},
    "gpipe": {"plan.parallel": {"tp": 1, "pp": 4}, "plan.pipeline": {"schedule": "gpipe"}},
    "fsdp": {"software": {"framework": "torchtitan", "date": "2025-06"}, "plan.sharding.strategy": "fsdp"},
    "hsdp": {
        "software": {"framework": "torchtitan", "date": "2025-06"},
        "plan.sharding": {"strategy": "hsdp", "shard_size": 4},
    },
    "zero2": {"plan.sharding.strategy": "zero2"},
    "full recompute": {"plan.recompute": {"policy": "full"}},
    "fp8": {"plan.precision": {"compute": "fp8_delayed"}},
    "offload": {"plan.offload": {"activations": 0.5, "optimizer": "cpu"}},
    "muon": {"plan.optimizer": "muon"},
    "mixture of experts": {"model": "qwen3-30b-a3b", "plan.parallel": {"ep": 8}},
    "latent attention": {"model": "deepseek-v2-lite", "plan.parallel": {"ep": 8}},
    "hybrid": {"model": "nemotron-3-nano-30b-a3b", "plan.parallel": {"ep": 8}},
    "delta net": {"model": "qwen3-next-80b-a3b", "plan.parallel": {"ep": 8}},
    "sinks": {"model": "gpt-oss-20b", "plan.parallel": {"ep": 4}},
    "tpu": {"cluster.accelerator": "tpu-v5p", "software": {"framework": "maxtext", "date": "2025-06"}},
    "amd": {"cluster.accelerator": "mi355x"},
}


@pytest.fixture(params=VARIANTS, ids=list(VARIANTS))
def projection(request: pytest.FixtureRequest, make_job: MakeJob) -> Projection:
    return project(make_job(VARIANTS[request.param]))


def test_time_sums_to_the_step(projection: Projection) -> None:
    assert projection.time.total == pytest.approx(projection.step_time, rel=1e-9)


def test_throughput_is_tokens_over_time(projection: Projection) -> None:
    batch = projection.job.plan.batch
    tokens = batch.global_batch_size * batch.sequence_length
    assert projection.tokens_per_second * projection.step_time == pytest.approx(tokens)


def test_utilisation_is_physical(projection: Projection) -> None:
    assert 0 < projection.mfu < 0.95


def test_a_step_takes_at_least_its_flops_at_peak(projection: Projection) -> None:
    tokens = projection.tokens_per_second * projection.step_time / projection.job.cluster.num_accelerators
    assert projection.step_time >= tokens * projection.flops_per_token.causal_half / projection.peak_flops


def test_questions_about_the_run_leave_the_step_alone(make_job: MakeJob) -> None:
    job = make_job({})
    asked = replace(job, run=Run(tokens=1e12, mtbf_per_accelerator=5e7, restart_time=600.0))
    answer = project(asked)
    assert answer.step_time == project(job).step_time
    assert answer.run is not None
    assert answer.run.goodput is not None
    assert 0.9 < answer.run.goodput < 1


def test_flops_in_four_conventions(make_job: MakeJob) -> None:
    """Llama-3.1 8B: 6 × 7.505 B matrix parameters without the embedding, plus 6·s·L·h of causal scores."""
    flops = flops_per_token(make_job({"plan.recompute": {"policy": "full"}}))
    layers, h, kv, f, vocab, s = 32, 4096, 1024, 14336, 128256, 4096
    matrices = layers * (2 * h * h + 2 * h * kv + 3 * h * f) + vocab * h
    scores = 6 * s * layers * h
    assert flops.causal_half == 6 * matrices + scores
    assert flops.full_attention == 6 * matrices + 2 * scores
    assert flops.hardware - flops.full_attention == 2 * (matrices - vocab * h) + 2 * scores / 3
    assert flops.six_nd == 6 * 8_030_261_248


def test_slower_parts_give_slower_steps(make_job: MakeJob) -> None:
    slopes = dict(elasticity(make_job({"plan.parallel.tp": 4})))
    assert slopes["cluster.accelerator.peaks"] < -0.4
    assert all(slope <= 1e-6 for slope in slopes.values())
    assert sum(slopes.values()) >= -1.05


def test_differences_are_attributed_to_terms_that_sum(make_job: MakeJob) -> None:
    pair = [project(make_job({"plan.parallel.tp": tp})) for tp in (1, 4)]
    (delta,) = compare(pair)
    assert sum(delta.terms.values()) == pytest.approx(delta.step_time, rel=1e-9)
    assert delta.step_time == pytest.approx(pair[1].step_time - pair[0].step_time)
    assert delta.terms["tp"] > 0


def test_bubbles_of_equal_stages_follow_the_closed_form(make_job: MakeJob) -> None:
    """(p−1)/(m+p−1) for 1F1B, a v-th of the idle time when interleaved; hops and unequal ends are small here."""
    base = {"plan.parallel": {"tp": 1, "pp": 4}, "plan.batch.global_batch_size": 32}
    model = {"model.base": "llama3.1-8b", "model.vocab_size": 512}
    plain = project(make_job({**base, "model": {"base": "llama3.1-8b", "vocab_size": 512}}))
    assert plain.num_microbatches == 16
    assert plain.bubble_fraction == pytest.approx(3 / 19, abs=0.01)
    assert model
