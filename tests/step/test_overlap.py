"""What runs beside what, and what it costs: host beside device, traffic beside GEMMs and compute, bucket by bucket."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.cost.collectives.placement import placements
from windtunnel.cost.simulated import simulated_source
from windtunnel.job.job import Job
from windtunnel.ops.chunk import LocalParameters, lower_unit, units
from windtunnel.ops.op import Collective, Stream
from windtunnel.step.chunk import excess, stripped, unit_cost
from windtunnel.step.contention import contention
from windtunnel.step.data_parallel import DataParallel, packing_seconds
from windtunnel.step.host import HostSeconds, launch_seconds
from windtunnel.step.step import transfer

seconds = st.floats(1e-6, 10)


def layer_parts(job: Job):
    base = stripped(job)
    unit = next(unit for unit, _ in units(job, job.plan.pipeline.layout[0]) if unit.layer)
    return unit_cost(simulated_source(job), base, unit).cost


@given(seconds, seconds, st.floats(1.5, 16))
def test_a_chunk_lasts_the_longer_of_host_and_device_and_more_where_they_are_alike(host, device, sharpness):
    found = excess(HostSeconds(0.25 * host, 0.75 * host), device, sharpness)
    lasts = device + found.forward + found.backward
    assert lasts == pytest.approx((host**sharpness + device**sharpness) ** (1 / sharpness))
    assert found.backward == pytest.approx(3 * found.forward)


def test_no_host_adds_nothing_and_arrays_are_blended_one_by_one():
    nothing = excess(HostSeconds(0.0, 0.0), 2.0, 3.0)
    assert (nothing.forward, nothing.backward) == (0.0, 0.0)
    host = np.array([0.0, 1.0, 8.0])
    together = excess(HostSeconds(host / 2, host / 2), np.array([2.0, 1.0, 1.0]), 3.0)
    assert together.forward + together.backward == pytest.approx([0.0, 2 ** (1 / 3) - 1, 513 ** (1 / 3) - 1])


def test_overlapping_tensor_parallel_traffic_saves_some_of_it_and_never_costs(make_job):
    plain = make_job({"plan.parallel.tp": 4, "plan.parallel.sequence_parallel": True, "plan.overlap.tp_comm": False})
    cut = make_job({"plan.parallel.tp": 4, "plan.parallel.sequence_parallel": True, "plan.overlap.tp_comm": True})
    before, after = layer_parts(plain), layer_parts(cut)
    whole = before.forward.tp + before.hidden["tp"]
    assert 0 < after.forward.tp < before.forward.tp
    assert after.backward_input.tp <= before.backward_input.tp
    assert whole > 0


def test_what_was_gathered_is_gathered_again_only_where_it_is_not_kept(make_job):
    sharded = {"plan.parallel.tp": 2, "plan.parallel.sequence_parallel": True}

    def gathers(job: Job) -> int:
        unit = next(unit for unit, _ in units(job, job.plan.pipeline.layout[0]) if unit.layer)
        ops = lower_unit(stripped(job), unit)
        return sum(isinstance(op, Collective) and op.phase == "W" and op.collective == "all_gather" for op in ops)

    assert gathers(make_job(sharded)) == 2
    assert gathers(make_job({**sharded, "software.framework": "torchtitan"})) == 0


def test_equal_hidden_states_are_scattered_and_gathered(make_job):
    changes = {"plan.parallel": {"tp": 4, "pp": 2, "sequence_parallel": False}, "software.date": "2021-06"}
    job = make_job(changes)
    source, placed = simulated_source(job), placements(job.plan.parallel, job.cluster)
    size = 2 * job.plan.batch.micro_batch_size * job.plan.batch.sequence_length * job.model.hidden_size
    share = source.transfer(size / 4, placed["pp"])
    assert transfer(job, source) == pytest.approx(share + source.collective("all_gather", size, placed["tp"]))
    later = make_job({**changes, "software.date": "2025-06"})
    assert transfer(later, simulated_source(later)) == pytest.approx(source.transfer(size, placed["pp"]))


def test_every_bucket_has_a_latency_of_its_own(make_job):
    job = make_job({"cluster.num_accelerators": 64})
    pricer, parameters = DataParallel(job, simulated_source(job)), LocalParameters(4e9, 0.0)
    found = pricer.traffic(parameters)
    assert found.cut_reduce > 0
    assert pricer.traffic(LocalParameters(1e6, 0.0)).cut_reduce == 0


def test_packing_by_rank_grows_with_ranks_and_tensors(make_job):
    job = make_job({"software.framework": "nanotron"})
    tensors = 6 * job.model.num_layers / job.plan.parallel.pp
    assert packing_seconds(job, 9.0) == pytest.approx(2 * 8 * tensors * launch_seconds(job))
    assert packing_seconds(job, 1.0) == 0
    assert packing_seconds(make_job(), 9.0) == 0


def test_contention_is_by_the_bytes_up_to_what_runs():
    assert contention(1e9, 1.0, 1.0, 0.5, 4e9) == 0.125
    assert contention(1e12, 1.0, 3.0, 0.5, 4e9) == 0.5
    assert contention(1e12, 2.0, 1.0, 0.5, 4e9) == 0.5


def test_eager_torch_passes_over_the_logits_many_times(make_job):
    def moved(job: Job) -> list[float]:
        every = [unit for chunk in job.plan.pipeline.layout for unit, _ in units(job, chunk)]
        ops = [op for unit in every for op in lower_unit(stripped(job), unit) if op.name == "head_loss"]
        return [op.bytes_moved for op in ops if isinstance(op, Stream)]

    fused = moved(make_job({"plan.loss.fused_cross_entropy": True}))
    eager = moved(make_job({"plan.loss.fused_cross_entropy": False, "software.compiled": False}))
    assert [round(e / f, 2) for e, f in zip(eager, fused, strict=True)] == [38 / 5, 14 / 4]
