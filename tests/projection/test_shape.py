"""What plans of one shape share is what each of them has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from windtunnel.job import Job
from windtunnel.projection.batch import Batch
from windtunnel.projection.options import as_columns, as_rows
from windtunnel.projection.project import project
from windtunnel.projection.shape import shape_of
from windtunnel.search.inner import choices_of, kernels_of, recomputes_of
from windtunnel.search.space import default_space

MakeJob = Callable[[dict[str, Any]], Job]
ORDERS = ("tp-cp-ep-dp-pp", "dp-tp-cp-ep-pp", "tp-cp-ep-pp-dp", "pp-dp-ep-cp-tp")
DENSE: dict[str, Any] = {"cluster.num_accelerators": 64, "plan.parallel": {"tp": 2, "pp": 4}}


def batch_of(job: Job) -> Batch:
    """Every fourth variant of the default space."""
    inner = default_space(job).inner
    recomputes, kernels = recomputes_of(job, inner), kernels_of(job, inner)
    pairs = [(r, k) for r in range(0, len(recomputes), 4) for k in range(len(kernels))]
    return Batch(job, as_rows(recomputes, kernels, pairs), as_columns(choices_of(job, inner)))


@pytest.mark.parametrize("order", ORDERS)
def test_groups_are_placed_as_the_order_says(make_job: MakeJob, order: str) -> None:
    # Both grids must agree on dp where pp is not outermost: experts only where it is.
    experts = {"model": "qwen3-30b-a3b", "plan.parallel": {"tp": 2, "pp": 2, "ep": 16, "etp": 1}}
    job = make_job({**DENSE, **(experts if order.endswith("-pp") else {}), "plan.parallel.order": order})
    batch = batch_of(job)
    peak = batch.peak_device()
    for row, column in ((0, 0), (len(batch.rows) - 1, peak.shape[1] - 1)):
        answer = project(batch.plan(row, column))
        assert batch.exact(row)[column] == pytest.approx(answer.step_time, rel=1e-9)
        assert peak[row, column] == pytest.approx(max(s.device for s in answer.memory.stages), rel=1e-9)


def test_stages_replicas_and_recompute_leave_the_shape_alone(make_job: MakeJob) -> None:
    job = make_job(DENSE)
    same = ({"plan.parallel.pp": 2}, {"cluster.num_accelerators": 64, "plan.recompute.policy": "full"},
            {"plan.parallel.order": "tp-cp-ep-pp-dp"}, {"plan.batch.global_batch_size": 128})  # fmt: skip
    assert all(shape_of(make_job({**DENSE, **changes})) is shape_of(job) for changes in same)
    other = ({"plan.parallel.tp": 4}, {"plan.batch.micro_batch_size": 2}, {"plan.parallel.pp": 1})
    assert all(shape_of(make_job({**DENSE, **changes})) is not shape_of(job) for changes in other)


def test_a_twin_is_the_batch_of_its_group_order(make_job: MakeJob) -> None:
    near, far = make_job(DENSE), make_job({**DENSE, "plan.parallel.order": "tp-cp-ep-pp-dp"})
    twin, own = batch_of(near).beside(far), batch_of(far)
    rows = np.arange(len(own.rows))
    np.testing.assert_array_equal(twin.peak_device(), own.peak_device())
    np.testing.assert_array_equal(twin.times(rows).estimate, own.times(rows).estimate)
    assert (batch_of(near).times(rows).estimate != own.times(rows).estimate).any()
