"""Intervals: quantiles of comparable runs, wider groups where there are few, wider tails for the unseen."""

from __future__ import annotations

from dataclasses import replace
from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.calibration.intervals import BORROWED, FEWEST, LEVEL, error_table, kind_of, quantile, with_interval
from windtunnel.projection.project import project


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=50), st.floats(0.02, 0.98))
def test_a_quantile_lies_among_the_values(values, share):
    ordered = sorted(values)
    assert ordered[0] <= quantile(ordered, share) <= ordered[-1]


def test_quantiles_of_few_values_are_their_ends():
    assert [quantile([1.0, 2.0, 3.0], share) for share in (0.1, 0.5, 0.9)] == [1.0, 2.0, 3.0]


@pytest.fixture(scope="module")
def job(make_job):
    return make_job({})


def errors(job, count=99):
    """``count`` runs whose errors are spread evenly over ±0.49."""
    return [(job, (index - count // 2) / 100) for index in range(count)]


def test_four_fifths_of_comparable_runs_lie_within(job):
    low, high = error_table(errors(job)).interval(job)
    assert (low, high) == pytest.approx((-0.40, 0.40))
    assert sum(low <= error <= high for _, error in errors(job)) / 99 == pytest.approx(LEVEL, abs=0.02)


def test_the_interval_of_a_step_is_the_projection_times_the_errors(job):
    answer = with_interval(project(job), error_table(errors(job)))
    assert answer.uncertainty is not None
    assert answer.uncertainty.level == LEVEL
    assert answer.uncertainty.step_time == pytest.approx((answer.step_time * exp(-0.4), answer.step_time * exp(0.4)))
    assert answer.uncertainty.peak_device == answer.memory.interval


def test_an_accelerator_or_a_framework_never_seen_widens_it(job):
    table = error_table(errors(job))
    chip = replace(job.cluster.accelerator, name="new")
    elsewhere = replace(job, cluster=replace(job.cluster, accelerator=chip))
    both = replace(elsewhere, software=replace(job.software, framework="nanotron"))
    widths = [high - low for low, high in map(table.interval, (job, elsewhere, both))]
    assert widths == sorted(widths)
    assert widths[0] < widths[1] < widths[2]


def test_few_runs_fall_back_on_a_wider_group(make_job, job):
    fp8 = make_job({"plan.precision.compute": "fp8_delayed"})
    table = error_table([*errors(job), *[(fp8, 0.9)] * (FEWEST - 1)])
    assert f"{kind_of(fp8).model} fp8" not in table.groups
    assert table.interval(fp8) == (table.groups["dense"].low[0], table.groups["dense"].high[0])


def test_spreads_are_those_between_and_within_kinds_of_runs(make_job, job):
    other = make_job({"plan.precision.compute": "fp8_delayed"})
    table = error_table([(job, 0.09), (job, 0.10), (job, 0.11), (other, -0.09), (other, -0.10), (other, -0.11)])
    assert table.common == pytest.approx(0.10 / 0.6745)
    assert table.run == pytest.approx(0.01 / 0.6745)


def test_what_makes_jobs_comparable(make_job, job):
    assert kind_of(job).groups() == ("dense half megatron-core", "dense half", "dense", "all")
    fp4 = make_job({"plan.precision.compute": "nvfp4", "cluster.accelerator": "b200-180gb"})
    assert kind_of(fp4).precision == "fp4"
    assert kind_of(make_job({"software.date": "2023-05"})).framework == "megatron-core eager"


def test_a_small_group_is_drawn_towards_the_wider_one(make_job, job):
    fp8 = make_job({"plan.precision.compute": "fp8_delayed"})
    own = [(fp8, 0.5)] * FEWEST
    table = error_table([*errors(job), *own])
    high, wider = table.groups["dense fp8"].high[0], table.groups["dense"].high[0]
    assert high == pytest.approx((FEWEST * 0.5 + BORROWED * wider) / (FEWEST + BORROWED))
