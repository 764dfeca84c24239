"""What a device holds beyond the tensors: the allocator's reserve, what it means for the verdict, communicators."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.catalog.jobs import load_job
from windtunnel.memory.device import communicators
from windtunnel.memory.interval import residuals
from windtunnel.projection import compose
from windtunnel.projection.memory import verdict

CAPACITY = 80.0


@given(
    allocated=st.floats(1, 100),
    cached=st.floats(0, 5),
    outside=st.floats(0, 5),
    ratio=st.floats(1, 1.1),
    high=st.floats(1, 1.2),
)
def test_what_is_alive_decides_not_what_is_cached(
    allocated: float, cached: float, outside: float, ratio: float, high: float
) -> None:
    held = compose.reserved(allocated, cached, ratio, compose.room(CAPACITY, high, outside)) + outside
    least = allocated + cached + outside
    assert least <= held <= max(least, (allocated + cached) * ratio + outside)
    assert verdict(held, CAPACITY, high) == verdict(least, CAPACITY, high) or abs(least * high - CAPACITY) < 1e-6


JOB = {
    "model": "llama3-8b",
    "cluster": {"accelerator": "h100-sxm-80gb", "num_accelerators": 8},
    "software": {"framework": "megatron-core", "date": "2025-06"},
    "plan": {"batch": {"micro_batch_size": 1, "global_batch_size": 64, "sequence_length": 4096}},
}


def test_expandable_segments_take_the_spread_of_the_allocator_out_of_the_interval() -> None:
    job = load_job(JOB)
    expandable = replace(job, software=replace(job.software, allocator="expandable_segments"))
    (low, high), (same, narrower) = residuals(job), residuals(expandable)
    assert low == same
    assert 1 < narrower < high
    assert (narrower - 1) ** 2 + (job.constants.memory.reserved_spread - 1) ** 2 == pytest.approx((high - 1) ** 2)


@pytest.mark.parametrize(
    ("framework", "groups"),
    [("megatron-core", {"tp", "pp", "dp", "all ranks", "tp pp", "dp cp"}), ("torchtitan", {"tp", "pp", "dp"})],
)
def test_megatron_has_communicators_of_products_of_degrees(framework: str, groups: set[str]) -> None:
    job = load_job(JOB, set={"plan.parallel": {"tp": 2, "pp": 2, "dp": 2}, "software.framework": framework})
    assert communicators(job) == len(groups)
