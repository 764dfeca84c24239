"""Rows and summaries of records: signs, conventions, memberships, orders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from windtunnel.job import Job, Record
from windtunnel.job.record import Measured, Source
from windtunnel.projection.project import project
from windtunnel.records.compare import Checked, check_record, in_convention
from windtunnel.records.summary import grouped, one_series, summarise

MakeJob = Callable[[dict[str, Any]], Job]


@pytest.fixture(scope="module")
def record(make_job: MakeJob) -> Record:
    job = make_job({})
    return Record(
        id="one",
        job=job,
        given={"plan": {"parallel": {"tp": 1}}},
        measured=Measured(step_time=project(job).step_time * 1.25),
        bar="normal",
        source=Source(title="a test"),
        file="tests",
        series="s",
    )


def speed(record: Record) -> Any:
    return next(row for row in check_record(record).rows if row.quantity == "speed")


def test_a_step_measured_slower_than_projected_is_optimism(record: Record) -> None:
    row = speed(record)
    assert row.error == pytest.approx(0.25)
    assert row.within_bar is False


@pytest.mark.parametrize("share", [0.8, 1.25])
def test_every_kind_of_speed_errs_to_the_same_side(record: Record, share: float) -> None:
    """A run that reached ``share`` of the projected speed has error 1/share − 1, however it was published."""
    answer = project(record.job)
    tokens = answer.tokens_per_second_per_accelerator
    flops = tokens * answer.flops_per_token.causal_half
    for measured in (
        Measured(step_time=answer.step_time / share),
        Measured(tokens_per_second_per_accelerator=tokens * share),
        Measured(model_flops_per_second_per_accelerator=flops * share),
        Measured(mfu=answer.mfu * share),
    ):
        found = speed(replace(record, measured=measured, flops_convention="causal_half"))
        assert found.error == pytest.approx(1 / share - 1)
        assert found.within_bar is False


def test_tokens_count_where_both_are_published(record: Record) -> None:
    exact = project(record.job).tokens_per_second_per_accelerator
    measured = Measured(step_time=1.0, tokens_per_second_per_accelerator=exact)
    assert speed(replace(record, measured=measured)).error == pytest.approx(0)


@pytest.mark.parametrize("convention", ["causal_half", "full_attention", "hardware", "6nd"])
def test_flops_are_compared_in_the_convention_of_the_source(record: Record, convention: Any) -> None:
    answer = project(record.job)
    flops = answer.tokens_per_second_per_accelerator * in_convention(answer.flops_per_token, convention)
    for measured in (Measured(model_flops_per_second_per_accelerator=flops), Measured(mfu=flops / 989.4e12)):
        assert speed(replace(record, measured=measured, flops_convention=convention)).error == pytest.approx(0)


def test_memory_is_compared_as_the_record_read_it(record: Record) -> None:
    stage = project(record.job).memory.stages[0]
    for kind, value in (("allocated", stage.allocated), ("reserved", stage.reserved), ("device", stage.device)):
        read = replace(record, measured=Measured(peak_memory=value), memory_kind=kind, memory_bar="tight")
        (row,) = check_record(read).rows
        assert (row.quantity, row.bar, row.error) == ("memory", "tight", 0)


def test_memory_per_stage_is_kept_beside_its_peak(make_job: MakeJob, record: Record) -> None:
    job = make_job({"plan.parallel": {"tp": 1, "pp": 4}})
    stages = tuple(stage.allocated for stage in project(job).memory.stages)
    read = replace(record, job=job, measured=Measured(peak_memory=max(stages), peak_memory_per_stage=stages))
    (row,) = [row for row in check_record(read).rows if row.quantity == "memory"]
    assert row.stages is not None
    assert [stage.error for stage in row.stages] == [0, 0, 0, 0]


def test_a_job_that_cannot_run_is_skipped_with_its_reason(record: Record) -> None:
    plan = record.job.plan
    broken = replace(plan, pipeline=replace(plan.pipeline, schedule="dualpipe"), parallel=replace(plan.parallel, pp=3))
    (row,) = check_record(replace(record, job=replace(record.job, plan=broken))).rows
    assert row.error is None
    assert row.skipped


def test_groups_leave_the_study_grid_and_fits_out(record: Record) -> None:
    checked = [
        check_record(record),
        check_record(replace(record, id="two", file="vtrain", bar="trend")),
        check_record(replace(record, id="three", bar="fits")),
    ]
    groups = summarise(checked).groups["speed"]
    assert {name: group.n for name, group in groups.items()} == {
        "all": 1, "normal": 1, "dense": 1, "dense normal": 1, "tests": 1, "vtrain": 1,
    }  # fmt: skip


def test_a_group_per_value_of_a_path(record: Record) -> None:
    checked = grouped(check_record(record), record, ["plan.parallel.tp"])
    assert summarise([checked]).groups["speed"]["plan.parallel.tp=1"].n == 1


def point(measured: float, projected: float, plan: str = "") -> Checked:
    return Checked(
        rows=(), verdict="fits", outcome="ran", speed=(measured, projected), series="s", plan=plan, is_vtrain=False
    )


def test_order_counts_beyond_two_per_cent_and_a_tie_is_wrong() -> None:
    series = one_series([point(100, 90), point(101, 80), point(120, 90), point(150, 140)])
    assert series.decided == 5
    assert series.ordered == pytest.approx(4 / 5)


def test_regret_is_what_the_favourite_loses_where_only_the_plan_varies() -> None:
    points = [point(100, 130), point(125, 120)]
    assert one_series(points).regret == pytest.approx(0.2)
    assert one_series([point(100, 130), point(125, 120, plan="another cluster")]).regret is None


def test_verdicts_are_counted_against_outcomes() -> None:
    def verdict(word: str, outcome: Any) -> Checked:
        return replace(point(1, 1), verdict=word, outcome=outcome)

    fits = summarise(
        [verdict("fits", "ran"), verdict("oom", "ran"), verdict("borderline", "ran"), verdict("fits", "oom")]
    ).fits
    assert (fits.n, fits.false_oom, fits.borderline, fits.missed_oom) == (4, 1, 1, 1)
