"""The measured source: the profile's seconds where it has them, the simulated ones elsewhere, each marked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from windtunnel.cost.anchor import SLOWDOWN, anchored, line
from windtunnel.cost.collectives.placement import Placement
from windtunnel.cost.measured import measured_source
from windtunnel.cost.profile import Entry, Key, Profile
from windtunnel.cost.profile_keys import calibration_key, collective_key, op_key, optimizer_key, unit_key
from windtunnel.cost.simulated import simulated_source
from windtunnel.ops.chunk import Unit, lower_unit, units
from windtunnel.ops.sizes import sizes
from windtunnel.projection.evidence import compare_ops
from windtunnel.projection.project import project


def profile(entries: Iterable[tuple[Key, float]]) -> Profile:
    made = tuple(Entry(key=named, seconds=s, low=s, high=s, repeats=1) for named, s in entries)
    return Profile(device=(("name", "here"),), software=(), method=(), entries=made)


def unit_entries(job, factor: float):
    """Every unit of the job measured at ``factor`` of what simulation says of it."""
    source = simulated_source(job)
    for chunk in job.plan.pipeline.layout:
        for unit, _ in units(job, chunk):
            by_phase = {"F": 0.0, "B": 0.0, "W": 0.0}
            for op in lower_unit(job, unit):
                if source.cost(op).bound != "network":
                    by_phase[op.phase] += source.cost(op).seconds
            sized = sizes(job, unit)
            yield unit_key(sized, "forward"), by_phase["F"] * factor
            yield unit_key(sized, "backward"), (by_phase["B"] + by_phase["W"]) * factor


def test_an_empty_profile_changes_nothing(make_job):
    job = make_job({"plan.parallel.tp": 2, "plan.parallel.pp": 2})
    plain, measured = project(job), project(job, measured_source(job, profile([])))
    assert measured.step_time == plain.step_time
    assert measured.provenance.simulated == pytest.approx(1)


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_units_measured_whole_scale_compute(make_job, factor: float):
    job = make_job()
    plain = project(job)
    measured = project(job, measured_source(job, profile(unit_entries(job, factor))))
    assert measured.time.compute == pytest.approx(factor * plain.time.compute)
    assert measured.provenance.measured > 0.85


def test_an_op_measured_alone_is_taken_and_marked(make_job):
    job = make_job()
    (unit, _), *_ = [held for held in units(job, job.plan.pipeline.layout[0]) if held[0].kind == "layer"]
    op = next(op for op in lower_unit(job, unit) if op.name == "qkv" and op.phase == "F")
    source = measured_source(job, profile([(op_key(op), 1.25)]))
    cost = source.within(job, unit).cost(op)
    assert (cost.seconds, cost.provenance) == (1.25, "measured")
    other = next(op for op in lower_unit(job, unit) if op.name == "mlp_up")
    assert source.cost(other) == simulated_source(job).cost(other)


def test_the_ratio_of_layer_to_ops_holds_where_no_unit_was_measured(make_job):
    job = make_job()
    ratios = [(calibration_key(f"layer_over_ops/{phase}"), 1.5) for phase in ("forward", "backward")]
    measured, simulated = project(job, measured_source(job, profile(ratios))), project(job)
    (layer,) = (unit for unit in simulated.costs.chunks[0].units if unit.occurrences == job.model.num_layers)
    each = (layer.cost.forward + layer.cost.backward_input + layer.cost.backward_weight).compute
    layers = each * job.model.num_layers * simulated.num_microbatches
    assert measured.time.compute == pytest.approx(simulated.time.compute + 0.5 * layers)


def test_a_collective_and_an_optimizer(make_job):
    job = make_job()
    placement = Placement(8, 8)
    source = measured_source(
        job, profile([(collective_key("all_reduce", 8, 8, 100.0), 3.0), (optimizer_key(job, 7), 2.0)])
    )
    assert source.collective("all_reduce", 100.0, placement) == 3.0
    assert source.optimizer(job, 7) == 2.0
    assert source.optimizer(job, 8) is None
    plain = simulated_source(job)
    assert source.collective("all_gather", 100.0, placement) == plain.collective("all_gather", 100.0, placement)


def test_the_network_is_anchored_on_what_was_measured(make_job):
    job = make_job()
    curve = [(collective_key("all_gather", 8, 8, size), 1e-4 + size * 7 / 8 / 1e9) for size in (1e5, 1e6, 1e7)]
    hops = [(collective_key("send_recv", 2, 2, size), 2e-5 + size / 2e9) for size in (1e5, 1e7)]
    real = anchored(job, profile([*curve, *hops, (calibration_key(SLOWDOWN), 0.4)]))
    fit = next(fit for fit in real.cluster.scale_up.fits if fit.op == "all_gather" and fit.ranks == 8)
    assert fit.latency == pytest.approx(1e-4)
    assert fit.bandwidth == pytest.approx(1e9)
    source = simulated_source(real)
    assert source.transfer(1e6, Placement(2, 2)) == pytest.approx(2e-5 + 1e6 / 2e9)
    assert source.collective("all_gather", 3e6, Placement(8, 8)) == pytest.approx(1e-4 + 3e6 * 7 / 8 / 1e9)
    assert real.constants.collective.slowdown == 0.4
    assert anchored(job, profile([])) == job


def test_a_line_through_points_is_never_negative():
    assert line([(1.0, 2.0), (2.0, 3.0)]) == pytest.approx((1.0, 1.0))
    latency, rate = line([(1.0, 1.0), (2.0, 2.5)])
    assert latency == 0.0
    assert rate > 0
    assert line([(1.0, 2.0), (2.0, 1.0)])[1] > 0


def test_ops_side_by_side(make_job):
    job = make_job()
    source = measured_source(job, profile(unit_entries(job, 2.0)))
    rows = compare_ops(job, simulated_source(job), job, source, 0)
    assert all(row.measured == pytest.approx(2 * row.simulated) for row in rows if row.evidence == "measured")
    assert rows[0].measured == max(row.measured for row in rows)


def test_what_a_backward_executes_again_takes_what_it_was_measured_to_take(make_job):
    job = make_job({"plan.recompute": {"policy": "full"}})
    layer = next(unit for unit, _ in units(job, job.plan.pipeline.layout[0]) if unit.layer is not None)
    sized = sizes(job, layer)
    plain = [(unit_key(sized, "forward"), 1.0), (unit_key(sized, "backward"), 2.0)]
    forward, measured = (
        project(job, measured_source(job, profile(entries)))
        for entries in (plain, [*plain, (unit_key(sized, "backward", again=layer.recompute), 2.7)])
    )
    times = job.model.num_layers * forward.num_microbatches
    assert forward.time.recompute == pytest.approx(1.0 * times)
    assert measured.time.recompute == pytest.approx(0.7 * times)
    assert measured.time.compute == pytest.approx(forward.time.compute)


def test_other_group_sizes_keep_the_catalogs_ratio_to_what_was_measured(make_job):
    job = make_job()
    before = {(fit.op, fit.ranks): fit for fit in job.cluster.scale_up.fits}
    pair = before["all_gather", 2]
    twice = [  # a link that takes twice as long for everything
        (
            collective_key("all_gather", 2, 2, size),
            2 * (pair.latency + pair.root * size**0.5 + size / 2 / pair.bandwidth),
        )
        for size in (2.0**16, 2.0**20, 2.0**28)
    ]
    after = {(fit.op, fit.ranks): fit for fit in anchored(job, profile(twice)).cluster.scale_up.fits}
    ratio = before["all_gather", 8].bandwidth / after["all_gather", 8].bandwidth
    assert ratio == pytest.approx(2, rel=0.05)
    assert after["all_gather", 8].latency > 1.2 * before["all_gather", 8].latency
    assert after["all_reduce", 8] == before["all_reduce", 8]
    assert after.keys() == before.keys()


@pytest.mark.parametrize("kind", ["embedding", "head"])
def test_a_part_of_a_vocabulary_is_not_a_smaller_one(make_job, kind):
    """A rank that holds half of one reduces its loss with the others; one that holds a whole of that size does not."""
    half = make_job({"plan.parallel.tp": 2, "plan.parallel.sequence_parallel": False})
    whole = make_job({"plan.parallel.tp": 1})
    parted, alone = sizes(half, Unit(kind=kind)), sizes(whole, Unit(kind=kind))
    assert unit_key(parted, "forward") != unit_key(replace(alone, vocab=parted.vocab), "forward")
