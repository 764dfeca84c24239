"""One job under every schedule: what runs, what it costs, why the rest does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windtunnel.errors import LegalityError
from windtunnel.job import Job
from windtunnel.job.plan import Chunk
from windtunnel.projection.layouts import balanced
from windtunnel.projection.project import project
from windtunnel.projection.schedules import ScheduleChoice, compare_schedules
from windtunnel.schedule.layout import minimax_cut

MakeJob = Callable[[dict[str, Any]], Job]

BASE: dict[str, Any] = {
    "cluster.num_accelerators": 16,
    "plan.parallel": {"tp": 1, "pp": 4},
    "plan.batch": {"micro_batch_size": 1, "global_batch_size": 64, "sequence_length": 4096},
}


@pytest.fixture(scope="module")
def choices(make_job: MakeJob) -> tuple[ScheduleChoice, ...]:
    def vary(changes: Mapping[str, object]) -> Job:
        return make_job({**BASE, **changes})

    return compare_schedules(make_job(BASE), vary)


def test_all_thirteen_schedules_are_judged(choices: tuple[ScheduleChoice, ...]) -> None:
    assert len({choice.name for choice in choices}) == 13


def test_the_fastest_comes_first(choices: tuple[ScheduleChoice, ...]) -> None:
    times = [choice.step_time for choice in choices if choice.step_time is not None]
    assert times == sorted(times)


def test_what_cannot_run_says_why(choices: tuple[ScheduleChoice, ...]) -> None:
    assert all(choice.why for choice in choices if not choice.applicable)


def test_schedules_rank_as_their_bubbles_do(choices: tuple[ScheduleChoice, ...]) -> None:
    best = {choice.name: choice.step_time for choice in reversed(choices) if choice.step_time is not None}
    assert best["zbv"] < best["zb_h1"] < best["1f1b"]
    assert best["interleaved_1f1b"] < best["1f1b"]


def test_v_shaped_schedules_save_memory_in_their_order(choices: tuple[ScheduleChoice, ...]) -> None:
    peak = {choice.name: choice.peak_device for choice in choices if choice.peak_device is not None}
    assert peak["v_min"] < peak["v_half"] < peak["zbv"] < peak["gpipe"]


def test_dualpipe_holds_parameters_twice(make_job: MakeJob) -> None:
    plain = project(make_job(BASE))
    twice = project(make_job({**BASE, "plan.pipeline": {"schedule": "dualpipe"}}))
    assert sum(twice.parameters.per_stage) == 2 * sum(plain.parameters.per_stage)
    assert twice.time.total == pytest.approx(twice.step_time)


def test_a_schedule_that_pairs_micro_batches_hides_expert_traffic(make_job: MakeJob) -> None:
    moe = {**BASE, "model": "qwen3-30b-a3b", "plan.parallel": {"tp": 1, "pp": 4, "ep": 4}}
    plain = project(make_job({**moe, "plan.pipeline": {"virtual_stages": 2}}))
    paired = project(make_job({**moe, "plan.pipeline": {"schedule": "1f1b_ep_overlap", "virtual_stages": 2}}))
    assert paired.time.ep < plain.time.ep
    assert paired.hidden_communication["ep"] > 0


def test_a_balanced_layout_is_never_slower_than_the_silent_one(make_job: MakeJob) -> None:
    """A small model with a large vocabulary: the head weighs as much as several layers."""
    job = make_job({**BASE, "model": "llama3.2-1b", "plan.parallel": {"tp": 1, "pp": 4}})
    layout = balanced(job)
    assert sum(len(chunk.layers) for chunk in layout) == 16
    assert len(layout[-1].layers) < len(layout[1].layers)
    again = make_job(
        {
            **BASE,
            "model": "llama3.2-1b",
            "plan.pipeline": {"layers_per_stage": [len(chunk.layers) for chunk in layout]},
        }
    )
    assert project(again).step_time < project(job).step_time


def with_capacity(job: Job, capacity: float, layout: tuple[Chunk, ...] | None = None) -> Job:
    small = replace(job.cluster.accelerator, hbm_capacity=capacity)
    pipeline = replace(job.plan.pipeline, layout=layout or job.plan.pipeline.layout)
    return replace(job, cluster=replace(job.cluster, accelerator=small), plan=replace(job.plan, pipeline=pipeline))


@pytest.mark.parametrize("pipeline", [{"schedule": "1f1b"}, {"schedule": "zbv"}, {"virtual_stages": 2}])
def test_a_balanced_layout_fits_where_the_fastest_would_not(make_job: MakeJob, pipeline: dict[str, Any]) -> None:
    """Less and less room: every layout that is given fits, the cut gives way, and no time is gained by it."""
    job = make_job({**BASE, "plan.parallel": {"tp": 1, "pp": 4}, "plan.pipeline": pipeline})
    free = project(with_capacity(job, 1e15, balanced(with_capacity(job, 1e15))))
    needed, moved = free.memory.peak.device, False
    for share in (1.2, 1.05, 0.98, 0.95, 0.92, 0.89, 0.86):
        tight = with_capacity(job, share * needed)
        try:
            layout = balanced(tight)
        except LegalityError:
            break
        found = project(with_capacity(job, share * needed, layout))
        assert found.memory.verdict != "oom"
        moved = moved or layout != free.job.plan.pipeline.layout
    assert moved or pipeline != {"schedule": "1f1b"}


@settings(max_examples=50, deadline=None)
@given(weights=st.lists(st.floats(0.1, 10), min_size=1, max_size=9), parts=st.integers(1, 4))
def test_the_cut_is_exactly_minimax(weights: list[float], parts: int) -> None:
    from itertools import combinations

    parts = min(parts, len(weights))
    counts = minimax_cut(weights, parts)
    best = min(
        max(sum(weights[a:b]) for a, b in zip((0, *cut), (*cut, len(weights)), strict=True))
        for cut in combinations(range(1, len(weights)), parts - 1)
    )
    start, heaviest = 0, 0.0
    for count in counts:
        heaviest = max(heaviest, sum(weights[start : start + count]))
        start += count
    assert heaviest == pytest.approx(best)
