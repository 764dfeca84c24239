"""Kinds of tensors at the peak: they sum to it, class by class, and a recompute module spares what it says."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from test_over_time import changes

from windtunnel.catalog.jobs import load_job
from windtunnel.errors import WindtunnelError
from windtunnel.job import Job
from windtunnel.memory.breakdown import MemoryBreakdown
from windtunnel.memory.tensors import tensors_at_peak
from windtunnel.projection.memory import project_memory

MakeJob = Callable[[dict[str, Any]], Job]
EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))
CLASSES = ("weights", "gradients", "master", "moments", "activations", "logits", "buffers", "dispatcher")


def check(job: Job, stage: MemoryBreakdown) -> None:
    kinds = tensors_at_peak(job, stage)
    assert len({kind.name for kind in kinds}) == len(kinds)
    by_class: dict[str, float] = defaultdict(float)
    for kind in kinds:
        by_class[kind.of] += kind.bytes
        assert kind.bytes > 0 or kind.name == "on the host instead"
    for name in CLASSES:
        assert by_class[name] == pytest.approx(getattr(stage, name), rel=1e-9, abs=1)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changed=changes())
def test_kinds_sum_to_the_classes_of_every_stage(make_job: MakeJob, changed: dict[str, Any]) -> None:
    try:
        job = make_job(changed)
        memory = project_memory(job)
    except WindtunnelError:
        return
    for stage in memory.stages:
        check(job, stage)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_kinds_sum_to_the_classes_of_every_example(path: Path) -> None:
    job = load_job(path)
    check(job, project_memory(job).peak)


@pytest.mark.parametrize("module", ["layernorm", "mlp"])
def test_what_a_module_spares_is_gone_with_it(make_job: MakeJob, module: str) -> None:
    """But for the head's norm, which no policy of layers touches."""

    def spared(recompute: Mapping[str, Any]) -> float:
        job = make_job({"model": "opt-13b", "plan.recompute": recompute})
        kinds = tensors_at_peak(job, project_memory(job).stages[0])
        return sum(kind.bytes for kind in kinds if module in kind.dropped_by)

    assert spared({"policy": "modules", "modules": [module]}) < 0.02 * spared({"policy": "none"})


def test_an_optimizer_step_is_told_apart(make_job: MakeJob) -> None:
    """Four bytes for each of 70.55 billion parameters over tp 8 and dp 1: fp32 copies of bf16 gradients."""
    job = make_job(
        {
            "model": "llama3.1-70b",
            "plan.parallel": {"tp": 8},
            "plan.precision": {"compute": "bf16", "grads": "bf16"},
            "plan.recompute": {"policy": "full"},
            "plan.batch": {"micro_batch_size": 1, "global_batch_size": 1, "sequence_length": 1024},
        }
    )
    kinds = {kind.name: kind.bytes for kind in tensors_at_peak(job, project_memory(job).peak)}
    assert kinds["fp32 copies of gradients"] == pytest.approx(4 * kinds["weights"] / 2)
    assert kinds["weights"] == pytest.approx(2 * 70.55e9 / 8, rel=0.01)
