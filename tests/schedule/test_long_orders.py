"""Long orders repeat what short ones show: the same actions as if every micro-batch were arranged on its own."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windtunnel.schedule import v_pattern, zb_greedy
from windtunnel.schedule.action import Order
from windtunnel.schedule.base import Request, Schedule
from windtunnel.schedule.dependencies import compile_order
from windtunnel.schedule.in_flight import peak_in_flight
from windtunnel.schedule.registry import build_order
from windtunnel.schedule.v_half import V_HALF
from windtunnel.schedule.v_min import V_MIN
from windtunnel.schedule.zb_greedy import Pipe, Switches
from windtunnel.step.timeline import ChunkDurations, execute

COSTS = [(1.0, 1.0, 1.0, 0.0), (1.0, 1.2, 0.8, 0.1), (1.0, 1.5, 0.7, 0.123), (0.0123456, 0.0234567, 0.0098765, 0.00034)]


@pytest.mark.parametrize("schedule", [V_HALF, V_MIN], ids=["v_half", "v_min"])
@pytest.mark.parametrize("p", range(1, 13))
def test_a_long_v_is_a_short_one_with_more_of_its_middle(
    schedule: Schedule, p: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = [p, p + 1, 2 * p + 5, 3 * p + 8]
    fast = [build_order(schedule.name, p, m).actions for m in sizes]
    monkeypatch.setattr(v_pattern, "_prolonged", lambda *_: None)
    for m, rows in zip(sizes, fast, strict=True):
        assert schedule.rows(Request(num_stages=p, num_microbatches=m, virtual_stages=2)) == rows


@pytest.mark.parametrize("costs", COSTS)
@pytest.mark.parametrize(("p", "m", "cap"), [(4, 40, 4), (4, 40, 6), (6, 60, 6), (8, 64, 8), (8, 64, 12), (3, 50, 50)])
def test_repeated_rounds_are_what_the_greedy_would_place(
    p: int, m: int, cap: int, costs: tuple[float, float, float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Same length of the longest stage: its work and its bubble.

    With more room than p the stages' bubbles grow apart, and the greedy would later weigh them otherwise: within 2 %.
    """
    for switches in product((True, False), repeat=3):
        repeated = Pipe(p, m, cap, costs, Switches(*switches))
        repeated.run(float("inf"))
        with monkeypatch.context() as patch:
            patch.setattr(zb_greedy.Pipe, "_recurs", lambda *_: False)
            plain = Pipe(p, m, cap, costs, Switches(*switches))
            plain.run(float("inf"))
        assert repeated.span == pytest.approx(plain.span, rel=1e-9 if cap <= p else 0.02)
        assert repeated.span == pytest.approx(m * sum(costs[:3]) + repeated.largest)


def span(order: Order, costs: tuple[float, float, float, float]) -> float:
    timeline = execute(order, [ChunkDurations(*costs[:3])] * order.num_stages, costs[3])
    return max(row[-1].end - row[0].start for row in timeline.spans)


@pytest.mark.parametrize("costs", COSTS)
@pytest.mark.parametrize(("p", "m"), [(4, 32), (8, 64), (16, 128)])
def test_caps_below_the_stages_come_near_the_bound_of_memory(
    p: int, m: int, costs: tuple[float, float, float, float]
) -> None:
    """At most ``cap`` lives on the first stage at once, each down the pipe and back: no order is shorter."""
    forward, backward, weight, hop = costs
    for cap in (1, p // 4, p // 2, 3 * p // 4):
        life = p * (forward + backward) + weight + 2 * (p - 1) * hop
        least = m * max(life / cap, sum(costs[:3]))
        found = span(build_order("zb_heuristic", p, m, memory_cap=cap, costs=costs), costs)
        assert least * (1 - 1e-9) <= found <= 1.35 * least


@settings(max_examples=15, deadline=None)
@given(
    p=st.integers(2, 24),
    m=st.integers(64, 256),
    costs=st.tuples(*[st.floats(0.25, 4.0)] * 3, st.floats(0.0, 0.5)),
    data=st.data(),
)
def test_more_memory_never_slows_a_long_pipe(
    p: int, m: int, costs: tuple[float, float, float, float], data: st.DataObject
) -> None:
    caps = sorted(data.draw(st.sets(st.integers(max(1, p - 3), 3 * p), min_size=3, max_size=6)))
    orders = [build_order("zb_heuristic", p, m, memory_cap=cap, costs=costs) for cap in (*caps, None)]
    for cap, order in zip(caps, orders, strict=False):
        assert max(peak_in_flight(order)) <= cap
    spans = [span(order, costs) for order in orders]
    assert all(after <= before * (1 + 1e-9) for before, after in pairwise(spans))


@pytest.mark.parametrize(("p", "m"), [(32, 512), (48, 1024)])
def test_more_memory_never_slows_a_very_long_pipe(p: int, m: int) -> None:
    costs = (1.0, 1.3, 0.8, 0.07)
    orders = [build_order("zb_heuristic", p, m, memory_cap=cap, costs=costs) for cap in (p - 4, p, p + 3, 2 * p, m)]
    spans = [span(order, costs) for order in orders]
    assert all(after <= before * (1 + 1e-9) for before, after in pairwise(spans))


@pytest.mark.parametrize("name", ["1f1b", "interleaved_1f1b", "zb_heuristic", "zbv", "v_half"])
def test_memory_grows_with_the_spans(name: str) -> None:
    """Twice the micro-batches take no more than about twice the bytes, order and program and timeline together."""

    def bytes_of(m: int) -> int:
        tracemalloc.start()
        order = build_order(name, 4, m, 2 if name.startswith("inter") else 1, memory_cap=4)
        compile_order(order)
        timeline = execute(order, [ChunkDurations(1.0, 1.0, 1.0)] * order.num_chunks)
        held = sum(len(row) for row in timeline.spans)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert held
        return peak

    small, large = bytes_of(500), bytes_of(2000)
    assert large <= 4.5 * small
