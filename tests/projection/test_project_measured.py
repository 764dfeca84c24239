"""Co-runners: a lone rank has none, ranks in step have all, stages that wait have a share."""

from __future__ import annotations

import pytest

from windtunnel.cost.profile import Entry, Profile
from windtunnel.cost.profile_keys import unit_key
from windtunnel.ops.chunk import units
from windtunnel.ops.sizes import sizes
from windtunnel.projection.measured import project_measured


def profile_of(job, alone: float, beside: float, co_runners: int) -> Profile:
    entries = {}
    for chunk in job.plan.pipeline.layout:
        for unit, _ in units(job, chunk):
            for count, seconds in ((0, alone), (co_runners, beside)):
                for phase in ("forward", "backward"):
                    named = unit_key(sizes(job, unit), phase, count)
                    entries[named] = Entry(key=named, seconds=seconds, low=seconds, high=seconds, repeats=1)
    return Profile(device=(), software=(), method=(), entries=tuple(entries.values()))


def test_ranks_in_step_are_all_busy(make_job):
    job = make_job()
    projection, source = project_measured(job, profile_of(job, 1.0, 2.0, 7))
    assert source.beside == 7
    units_of_a_step = 34 * 2 * projection.num_microbatches
    assert projection.time.compute == pytest.approx(2.0 * units_of_a_step)


def test_a_lone_rank_has_nobody_beside_it(make_job):
    job = make_job({"cluster.num_accelerators": 1})
    _, source = project_measured(job, profile_of(job, 1.0, 2.0, 7))
    assert source.beside == 0


def test_stages_that_wait_are_beside_for_a_share(make_job):
    job = make_job({"plan.parallel.pp": 8, "plan.batch.global_batch_size": 8})
    projection, source = project_measured(job, profile_of(job, 1.0, 2.0, 7))
    assert 0 < source.beside < 7
    assert projection.provenance.interpolated > 0.5
