"""Bytes over a step: the highest point is the peak that is projected, whatever the schedule, loss and recompute."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from windtunnel.errors import WindtunnelError
from windtunnel.job import Job
from windtunnel.memory.kept import kept_chunk
from windtunnel.memory.over_time import alive_at_peak, memory_over_time
from windtunnel.projection.project import project

MakeJob = Callable[[dict[str, Any]], Job]
CHUNKS = {
    "gpipe": (1,), "1f1b": (1,), "zb_h1": (1,), "zb_heuristic": (1,), "dualpipe": (1,), "zbv": (2,), "v_half": (2,),
    "v_min": (2,), "dualpipe_v": (2,), "1f1b_ep_overlap": (1, 2), "interleaved_1f1b": (2, 4), "looped_bfs": (2,),
    "interleaved_zb": (2, 4),
}  # fmt: skip
PIPELINE = {"cluster.num_accelerators": 32, "plan.parallel": {"tp": 1, "pp": 4}}


@st.composite
def changes(draw: st.DrawFn) -> dict[str, Any]:
    """A small job of any schedule, model kind, sharding, recompute and loss; not every one is legal."""
    schedule = draw(st.sampled_from(sorted(CHUNKS)))
    stages, microbatches = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([1, 2, 3, 4, 6, 8, 12]))
    return {
        "model": draw(st.sampled_from(["llama3.1-8b", "qwen3-30b-a3b"])),
        "software.framework": draw(st.sampled_from(["megatron-core", "torchtitan", "maxtext"])),
        "cluster.num_accelerators": 8 * stages,
        "plan.parallel": {"tp": 1, "pp": stages},
        "plan.pipeline": {"schedule": schedule, "virtual_stages": draw(st.sampled_from(CHUNKS[schedule]))},
        "plan.batch.global_batch_size": 8 * microbatches,
        "plan.sharding.strategy": draw(st.sampled_from(["ddp", "zero1", "fsdp"])),
        "plan.recompute": {"policy": draw(st.sampled_from(["none", "full", "selective"]))},
        "plan.loss": {"implementation": draw(st.sampled_from(["native", "te", "liger", "chunked"]))},
    }


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changed=changes())
def test_the_highest_point_is_the_projected_peak(make_job: MakeJob, changed: dict[str, Any]) -> None:
    try:
        projection = project(make_job(changed))
    except WindtunnelError:
        return
    lines = memory_over_time(projection.job, projection.timeline)
    for stage, line, alive in zip(
        projection.memory.stages, lines, alive_at_peak(projection.job, projection.timeline), strict=True
    ):
        assert max(point.allocated for point in line) == pytest.approx(stage.allocated, rel=1e-12)
        assert alive.allocated == pytest.approx(stage.allocated, rel=1e-12)


@pytest.mark.parametrize("schedule", sorted(CHUNKS))
def test_time_goes_forward_and_nothing_is_left(make_job: MakeJob, schedule: str) -> None:
    job = make_job(PIPELINE | {"plan.pipeline": {"schedule": schedule, "virtual_stages": CHUNKS[schedule][0]}})
    timeline = project(job).timeline
    for rank, line in enumerate(memory_over_time(job, timeline)):
        assert line[0].time == timeline.spans[rank][0].start
        assert line[-1].time == timeline.spans[rank][-1].end
        assert all(before.time <= after.time for before, after in pairwise(line))
        assert line[-1].allocated <= min(point.allocated for point in line[:-1])


def test_warm_up_climbs_by_what_a_micro_batch_keeps(make_job: MakeJob) -> None:
    job = make_job(PIPELINE)
    kept = kept_chunk(job, job.plan.pipeline.layout[0])
    climb = [point.allocated for point in memory_over_time(job, project(job).timeline)[0][:4]]
    assert [after - before for before, after in pairwise(climb)] == pytest.approx(
        [kept.activations + kept.dispatcher] * 3
    )


def test_the_peak_of_1f1b_holds_p_minus_r_micro_batches(make_job: MakeJob) -> None:
    job = make_job(PIPELINE)
    alive = alive_at_peak(job, project(job).timeline)
    assert [rank.in_flight for rank in alive] == [4, 3, 2, 1]
    assert [rank.moment for rank in alive] == ["backward", "backward", "backward", "loss"]
    assert [rank.logits > 0 for rank in alive] == [False, False, False, True]


def test_classes_at_the_peak_are_those_of_the_projection(make_job: MakeJob) -> None:
    job = make_job(PIPELINE | {"plan.recompute": {"policy": "full"}})
    projection = project(job)
    for stage, alive in zip(projection.memory.stages, alive_at_peak(job, projection.timeline), strict=True):
        for name in ("weights", "gradients", "master", "moments", "activations", "logits", "buffers", "dispatcher"):
            assert getattr(alive, name) == pytest.approx(getattr(stage, name), rel=1e-12)
        assert alive.moment == stage.moment
