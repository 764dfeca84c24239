"""Own runs as evidence: they are believed, they are carried to kin, and what is left to doubt shrinks."""

from __future__ import annotations

from dataclasses import replace
from math import log

import pytest

from windtunnel.calibration.anchor import WITHIN, anchor, anchored, attributed, comparable_runs
from windtunnel.calibration.gap import constants_that_explain, derivatives, parts_that_explain
from windtunnel.calibration.intervals import Spreads
from windtunnel.projection.project import project, step_time

SPREADS = Spreads(constants={"stream.slowdown": 0.1, "step.jitter": 0.1}, common=0.15, run=0.02)


@pytest.fixture(scope="module")
def job(make_job):
    return make_job({})


@pytest.fixture(scope="module")
def larger(make_job):
    return make_job({"cluster.num_accelerators": 64, "plan.batch.global_batch_size": 512})


def carried(job, own):
    found = anchor(job, own, SPREADS, step_time)
    return anchored(project(replace(job, constants=job.constants.having(found.values))), found)


@pytest.mark.parametrize("ratio", [0.8, 1.0, 1.3])
def test_the_anchor_itself_is_projected_as_measured(job, ratio):
    own = [(job, step_time(job) * ratio)]
    assert carried(job, own).step_time == pytest.approx(own[0][1], rel=0.02)


def test_a_common_error_is_carried_to_another_scale(job, larger):
    answer = carried(larger, [(job, step_time(job) * 1.25)])
    assert answer.step_time / step_time(larger) == pytest.approx(1.25, rel=0.02)


def test_an_error_that_a_constant_makes_is_given_to_the_constant(make_job, job):
    """Runs of unequal dependence on memory-bound passes, made where those cost 1.2 times as much."""
    truth = job.constants.having({"stream.slowdown": job.constants.stream.slowdown * 1.2})
    jobs = [make_job({"plan.batch.sequence_length": length}) for length in (1024, 4096, 16384, 65536)]
    own = [(other, step_time(replace(other, constants=truth))) for other in jobs]
    sharp = Spreads(constants={"stream.slowdown": 0.3}, common=0.3, run=0.002)
    found = anchor(job, own, sharp, step_time)
    assert found.values["stream.slowdown"] / job.constants.stream.slowdown == pytest.approx(1.2, rel=0.05)
    assert found.factor == pytest.approx(1, abs=0.01)
    before = job.constants.stream.slowdown
    assert attributed(job, found) == (("stream.slowdown", before, found.values["stream.slowdown"]),)


def test_more_runs_leave_less_doubt_and_the_document_adds_up(job, larger):
    own = [(job, step_time(job) * 1.1)]
    one, three = (anchor(larger, runs, SPREADS, step_time) for runs in (own, own * 3))
    assert SPREADS.run < three.spread < one.spread < SPREADS.common
    answer = carried(larger, own)
    assert answer.time.total == pytest.approx(answer.step_time)
    assert (answer.provenance.anchored, answer.provenance.simulated) == (1.0, 0.0)
    assert answer.uncertainty is not None
    low, high = answer.uncertainty.step_time
    assert log(high / low) == pytest.approx(2 * WITHIN * one.spread)


def test_runs_of_other_software_or_parts_are_no_evidence(make_job, job):
    other = make_job({"software.framework": "torchtitan", "plan.sharding.strategy": "fsdp"})
    part = make_job({"cluster.accelerator": "h200-sxm-141gb"})
    assert comparable_runs(job, [(other, 1.0), (part, 1.0), (job, 2.0)]) == [(job, 2.0)]


def test_derivatives_are_shares_of_the_step(job):
    """A step that a tenth of is memory-bound changes by a tenth of the change of what those passes cost."""
    (slope,) = derivatives(job, ["stream.slowdown"], step_time)
    assert 0.02 < slope < 0.5


def test_a_part_closes_the_gap_by_taking_it(job):
    answer = project(job)
    (largest, *_) = parts_that_explain(answer, answer.step_time * 1.1)
    assert largest.term == "compute"
    assert largest.needed == pytest.approx(largest.now + 0.1 * answer.step_time)
    faster = parts_that_explain(answer, answer.step_time * 0.5)
    assert all(item.needed is None or item.needed > 0 for item in faster)


def test_a_constant_that_made_the_gap_explains_it(job):
    made = job.constants.having({"stream.slowdown": job.constants.stream.slowdown * 1.1})
    measured = step_time(replace(job, constants=made))
    found = constants_that_explain(project(job), measured, {"stream.slowdown": 0.1}, step_time)
    assert found[0].needed == pytest.approx(job.constants.stream.slowdown * 1.1, rel=0.02)
    assert found[0].spreads == pytest.approx(log(1.1) / 0.1, rel=0.1)
