"""Memory anchored on pilots: residuals keep their sign, a pilot's own peak comes back, growth widens the bound."""

from __future__ import annotations

import pytest

from windtunnel.catalog.pilots import eager_software
from windtunnel.cost.profile import Entry, Profile
from windtunnel.projection.memory import project_memory
from windtunnel.projection.pilot_memory import anchored_memory, anchored_on_pilots, measured_pilots, per_layer
from windtunnel.projection.pilots import LAYERS, pilot, pilot_key, pilots
from windtunnel.projection.result import PilotMemory


def reading(layers: int, explained: float, excess: float, held: float) -> PilotMemory:
    allocated = explained + excess
    return PilotMemory(layers=layers, allocated=allocated, reserved=allocated + held, explained=explained)


@pytest.mark.parametrize("excess", [2e9, -1e9])
def test_a_pilot_predicts_itself(make_job, excess: float):
    memory = project_memory(make_job())
    peak = memory.peak
    own = reading(2, peak.allocated, excess, 5e8)
    anchored = anchored_memory(memory, 2, (own,))
    assert (anchored.live_excess, anchored.framework_overhead) == pytest.approx((excess, 5e8))
    assert anchored.point == pytest.approx(own.reserved + peak.overhead)
    assert anchored.upper == pytest.approx(anchored.point + 0.05 * (abs(excess) + 5e8))


def test_residuals_are_carried_to_the_target(make_job):
    target = project_memory(make_job({"plan.parallel.tp": 2}))
    anchored = anchored_memory(target, 32, (reading(2, 1e9, 1e9, 1e9),))
    assert anchored.point == pytest.approx(target.peak.allocated + target.peak.overhead + 2e9)


def test_an_excess_that_grows_by_the_layer_widens_the_bound_alone(make_job):
    target = project_memory(make_job())
    alike, growing = ((reading(2, 1e9, first, 0.0), reading(4, 2e9, 1e8, 0.0)) for first in (1e8, 8e7))
    assert per_layer(alike) == 0
    assert per_layer(growing) == pytest.approx(1e7)
    flat, grown = (anchored_memory(target, 32, found) for found in (alike, growing))
    assert grown.point == flat.point
    alive = max(1.0, target.peak.in_flight) * 32
    assert grown.upper - flat.upper == pytest.approx(1e7 * (alive - 4))


def test_the_verdict_is_that_of_point_and_bound(make_job):
    target = project_memory(make_job())
    room = target.capacity - target.peak.allocated - target.peak.overhead
    held = {room - 1e9: "fits", room - 1e6: "borderline", room + 1e9: "oom"}
    found = {excess: anchored_memory(target, 2, (reading(2, 1e9, excess, 0.0),)).verdict for excess in held}
    assert found == held


def test_pilots_are_a_rank_of_the_job_with_few_layers(make_job):
    job = make_job({"plan.parallel.tp": 2, "plan.parallel.pp": 2})
    few = pilots(job, eager_software())
    assert tuple(each.model.num_layers for each in few) == LAYERS
    assert {each.plan.parallel.tp for each in few} == {2}
    assert {each.plan.parallel.world for each in few} == {2}
    assert len({pilot_key(each, "bytes/allocated") for each in few}) == 2
    assert all(project_memory(each).peak.allocated > 0 for each in few)


def test_pilots_have_first_and_last_layers(make_job):
    job = make_job({"model": "deepseek-v3", "plan.parallel.ep": 8})
    kinds = [layer.feed_forward for layer in pilot(job, 2, eager_software()).model.layers]
    assert kinds == ["dense", "moe"]


def test_what_a_profile_holds_is_found_by_the_job(make_job):
    job, software = make_job(), eager_software()
    few = pilots(job, software)
    entries = [
        Entry(key=pilot_key(each, what), seconds=size, low=size, high=size, repeats=5)
        for each in few
        for what, size in (("bytes/allocated", 3e9), ("bytes/reserved", 4e9))
    ]
    profile = Profile(device=(), software=(), method=(), entries=tuple(entries))
    found = measured_pilots(job, profile, software)
    assert [(each.layers, each.allocated, each.framework_overhead) for each in found] == [(2, 3e9, 1e9), (4, 3e9, 1e9)]
    assert anchored_on_pilots(job, project_memory(job), profile, software).pilots == found
    other = make_job({"plan.batch.micro_batch_size": 2})
    assert anchored_on_pilots(other, project_memory(other), profile, software) is None
