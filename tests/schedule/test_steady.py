"""Short orders that stand in for long ones."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from windtunnel.errors import WindtunnelError
from windtunnel.schedule.action import Order
from windtunnel.schedule.in_flight import peaks
from windtunnel.schedule.job_order import GROWING, steady
from windtunnel.schedule.registry import build_order, schedule_names


@given(
    name=st.sampled_from(sorted(set(schedule_names()) - GROWING)),
    p=st.integers(1, 8),
    m=st.integers(1, 80),
    v=st.integers(1, 4),
    wider=st.integers(0, 3),
)
def test_a_full_pipeline_holds_the_same_however_long_it_runs(name: str, p: int, m: int, v: int, wider: int) -> None:
    """What ``steady`` leaves out changes no peak: batches of plans take their in-flight counts from the short order."""

    def order(microbatches: int) -> Order:
        return build_order(name, p, microbatches, v, microbatch_group_size=p + wider, all_forward_at_m_equals_p=False)

    try:
        full = order(m)
    except WindtunnelError:
        return
    for few in steady(name, p, m, p + wider):
        assert peaks(order(few)) == peaks(full)
