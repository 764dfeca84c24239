"""The ratio of a layer to its ops is found, and applied where no layer was measured whole; pilots check the sum."""

from __future__ import annotations

from dataclasses import replace

import pytest

from windtunnel.catalog.pilots import eager_software
from windtunnel.cost.measured import measured_source
from windtunnel.cost.profile import Entry, Profile
from windtunnel.cost.profile_keys import unit_key
from windtunnel.ops.chunk import lower_unit, units
from windtunnel.ops.sizes import sizes
from windtunnel.projection.in_model import layer_over_ops, pilot_steps
from windtunnel.projection.pilots import pilot_key, pilots
from windtunnel.projection.project import project
from windtunnel.step.chunk import stripped


def profile_of(entries) -> Profile:
    return Profile(device=(), software=(), method=(), entries=tuple(entries))


def entry(key, seconds: float) -> Entry:
    return Entry(key=key, seconds=seconds, low=seconds, high=seconds, repeats=5)


def layer(job):
    return next(unit for unit, _ in units(job, job.plan.pipeline.layout[0]) if unit.layer is not None)


def whole(job, times: float) -> Profile:
    """Its layer, measured to take ``times`` the sum of its simulated ops."""
    base, unit = stripped(job), layer(job)
    source = measured_source(job, profile_of(()))
    seconds = {"F": 0.0, "B": 0.0, "W": 0.0}
    for op in lower_unit(base, unit):
        if source.cost(op).bound != "network":
            seconds[op.phase] += source.cost(op).seconds
    named = {"forward": seconds["F"], "backward": seconds["B"] + seconds["W"]}
    return profile_of(entry(unit_key(sizes(base, unit), phase), times * value) for phase, value in named.items())


def test_the_ratio_is_that_of_the_measured_layer(make_job):
    job = make_job()
    found = {each.key.op: each.seconds for each in layer_over_ops(job, whole(job, 1.25))}
    assert found == {
        "calibration/layer_over_ops/forward": pytest.approx(1.25),
        "calibration/layer_over_ops/backward": pytest.approx(1.25),
    }
    assert layer_over_ops(job, profile_of(())) == ()


def test_the_ratio_stands_in_for_a_layer_nobody_measured(make_job):
    job, other = make_job(), make_job({"plan.parallel.tp": 2})
    known = whole(job, 1.25)
    ratios = profile_of(layer_over_ops(job, known))
    plain = project(other)
    scaled = project(other, measured_source(other, ratios))
    ends = (
        sum(
            unit.occurrences
            * (unit.cost.forward.compute + unit.cost.backward_input.compute + unit.cost.backward_weight.compute)
            for unit in plain.costs.chunks[0].units[:: len(plain.costs.chunks[0].units) - 1]
        )
        * plain.num_microbatches
    )  # embedding and head, first and last
    layers = plain.time.compute - ends
    assert scaled.time.compute == pytest.approx(1.25 * layers + ends, rel=1e-6)
    assert scaled.time.tp == pytest.approx(plain.time.tp)


def test_pilots_are_projected_from_the_same_profile(make_job):
    job, software = make_job(), eager_software()
    few = pilots(job, software)
    steps = [entry(pilot_key(each, "pilot"), 2 * project(each).step_time) for each in few]
    found = pilot_steps(job, profile_of(steps), software)
    assert [each.layers for each in found] == [2, 4]
    assert all(each.measured == pytest.approx(2 * each.projected) for each in found)
    shared = make_job({"plan.parallel.tp": 2})
    assert pilot_steps(shared, profile_of(steps), software) == ()


def test_a_pilot_beside_others_is_projected_beside_others(make_job):
    job, software = make_job(), eager_software()
    small = pilots(job, software)[0]
    (measured,) = pilot_steps(job, profile_of([entry(pilot_key(small, "pilot", 3), 1.0)]), software)
    assert measured.beside == 3


def test_lean_takes_measurements_at_their_percentiles(make_job):
    job = make_job()
    loose = profile_of(replace(each, low=0.9 * each.seconds, high=1.1 * each.seconds) for each in whole(job, 1).entries)
    low, middle, high = (project(job, measured_source(job, loose, lean=lean)).time.compute for lean in (-1, 0, 1))
    assert high - middle == pytest.approx(middle - low)
    assert 0.05 < high / middle - 1 <= 0.1
