"""What calibration sees of records: errors under any constants, weights, halves of a source's series."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import log
from typing import Any

import numpy as np
import pytest

from windtunnel.calibration.fit import Free, Trial
from windtunnel.job import Job, Record
from windtunnel.job.record import Measured, Source
from windtunnel.projection.project import step_time
from windtunnel.records.calibrate import calibrate, comparable
from windtunnel.records.compare import measured_step_time
from windtunnel.records.refit import MOST_OF_A_CELL, log_error, log_errors, other_half, runs_of

MakeJob = Callable[[dict[str, Any]], Job]
TRUTH = {"stream.slowdown": 2.6}


def record(
    job: Job, name: str, source: str, series: str | None = None, truth: dict[str, float] | None = None
) -> Record:
    """A run of ``job`` on a machine where the constants are as in ``truth``."""
    seconds = step_time(replace(job, constants=job.constants.having(truth or {})))
    return Record(
        id=name, job=job, given={}, measured=Measured(step_time=seconds), bar="normal", source=Source(title="a test"),
        file=source, series=series,
    )  # fmt: skip


@pytest.fixture(scope="module")
def made(make_job: MakeJob) -> list[Record]:
    """Three sources that ran jobs of several sizes where memory-bound passes cost as in ``TRUTH``."""
    found = []
    for source, length in (("one", 2048), ("two", 4096), ("three", 8192)):
        for scale in (8, 64, 512):
            batch = {"micro_batch_size": 1, "global_batch_size": 8 * scale, "sequence_length": length}
            job = make_job({"cluster.num_accelerators": scale, "plan.batch": batch})
            found.append(record(job, f"{source}-{scale}", source, truth=TRUTH))
    return found


def free(job: Job) -> list[Free]:
    constants = job.constants
    return [
        Free(name="stream.slowdown", start=constants.stream.slowdown, neutral=1.0, low=1.0, high=4.0),
        Free(name="expert.host_wait", start=8e-5, neutral=6e-5, low=5e-6, high=2e-4),
    ]


def test_an_error_is_the_logarithm_of_projected_over_measured_speed(make_job: MakeJob) -> None:
    job = make_job({})
    run = replace(record(job, "a", "one"), measured=Measured(step_time=1.1 * step_time(job)))
    assert log_error(run, {}) == pytest.approx(log(1.1))
    assert measured_step_time(run) == pytest.approx(1.1 * step_time(job))
    assert np.isnan(log_errors([run], {}, np.array([False]))).all()


def test_runs_alike_share_a_weight_and_doubtful_ones_have_none(made: list[Record]) -> None:
    runs = runs_of(made, {"three-8": "a reason"})
    assert runs.weights.tolist().count(0.0) == 1
    assert sorted(set(runs.weights.round(6))) == [0.0, round(1 / 3**0.5, 6)]


def test_a_grid_of_runs_is_thinned(make_job: MakeJob) -> None:
    many = [record(make_job({}), str(index), "one") for index in range(3 * MOST_OF_A_CELL)]
    assert len(runs_of(many, {}).records) == MOST_OF_A_CELL


def test_half_of_the_series_of_a_source_is_hidden(make_job: MakeJob) -> None:
    job = make_job({})
    runs = runs_of([record(job, f"{name}{i}", "one", series=name) for name in "abc" for i in range(2)], {})
    hidden = other_half(runs, np.ones(6, dtype=bool))
    assert [r.series for r, out in zip(runs.records, hidden, strict=True) if out] == ["b", "b"]


def test_calibration_finds_what_made_the_runs_and_refuses_what_does_nothing(made: list[Record]) -> None:
    runs = runs_of(made, {})

    def evaluate(trials: list[Trial]) -> list[Any]:
        return [log_errors(runs.records, *trial) for trial in trials]

    found = calibrate(runs, free(made[0].job), {}, evaluate)
    values = {constant.name: constant for constant in found.constants}
    assert values["stream.slowdown"].value == pytest.approx(2.6, rel=0.05)
    assert values["expert.host_wait"].refused
    assert values["expert.host_wait"].value == 6e-5
    assert values["stream.slowdown"].kind == "global"
    assert values["stream.slowdown"].on == ("one", "two", "three")
    assert np.abs(found.in_sample).max() < 0.02
    assert np.abs(found.left_out).max() < 0.05
    assert comparable(found).groups["all"].n == len(made)
