"""Timelines and peaks of every schedule against a simulator that waits for events, under unequal F, B and W."""

from __future__ import annotations

from math import ceil

import pytest
from brute_force import simulate
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from windtunnel.schedule.action import Order
from windtunnel.schedule.in_flight import peak_in_flight
from windtunnel.schedule.registry import applicable, build_order, find, schedule_names
from windtunnel.step.timeline import ChunkDurations, execute

GENERATED = [name for name in schedule_names() if name != "custom"]
V_SHAPED = ["zbv", "v_half", "v_min", "dualpipe_v"]


def claim(name: str, p: int, m: int, v: int, cap: int | None, group: int | None, rank: int) -> float:
    """Micro-batches of a stage alive on ``rank`` by the schedule's own account: the table of docs/schedules.md."""
    lead = 2 * (p - 1 - rank) + (v - 1) * (group or p)
    return {
        "gpipe": m,
        "looped_bfs": m,
        "1f1b": min(p - rank, m),
        "interleaved_1f1b": m if m == p else min((lead + 1) / v, m),
        "1f1b_ep_overlap": min((lead + 2) / v, m),
        "zb_h1": min(p, m),
        "zb_heuristic": min(cap or m, m),
        "interleaved_zb": min((lead - (p - 1 - rank) + 1 + rank) / v, m),
        "zbv": min(p, m),
        "v_half": min(p // 2 + 1, m) if p > 1 else min(2, m),
        "v_min": min(ceil(p / 3) + 1, m),
        "dualpipe": p + 1,
        "dualpipe_v": p + 0.5,
    }[name]


@st.composite
def cases(draw: st.DrawFn, name: str) -> tuple[Order, tuple[int, int, int, int | None, int | None]]:
    p, m = draw(st.integers(1, 16)), draw(st.integers(1, 64))
    if name.startswith("dualpipe"):
        p, m = 2 * draw(st.integers(1, 8)), 2 * draw(st.integers(2, 32))
    v = find(name).virtual_stages or draw(st.integers(find(name).min_virtual_stages, 4))
    group = None
    if "microbatch_group_size" in find(name).uses:
        group = draw(st.none() | st.integers(p, 2 * p))
        size = group or p  # whole groups, and at the end possibly a part of at least p
        m = size * draw(st.integers(1, max(1, 64 // size))) + draw(st.sampled_from([0, *range(p, size)]))
    cap = draw(st.none() | st.integers(1, 2 * p)) if "memory_cap" in find(name).uses else None
    assume(applicable(name, p, m, v, microbatch_group_size=group) is None)
    return build_order(name, p, m, v, microbatch_group_size=group, memory_cap=cap), (p, m, v, cap, group)


@pytest.mark.parametrize("name", GENERATED)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_the_peak_is_no_higher_than_the_schedule_claims(name: str, data: st.DataObject) -> None:
    order, (p, m, v, cap, group) = data.draw(cases(name))
    for rank, held in enumerate(peak_in_flight(order)):
        assert held <= claim(name, p, m, v, cap, group, rank) + 1e-9


@pytest.mark.parametrize("name", GENERATED)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_both_simulators_see_the_same_step(name: str, data: st.DataObject) -> None:
    order, _ = data.draw(cases(name))
    assume(order.num_microbatches * order.num_chunks <= 1024)
    length = st.sampled_from([0.5, 0.75, 1.0, 1.25, 2.0, 3.5])  # sums of these are exact
    durations = [ChunkDurations(*(data.draw(length) for _ in range(3))) for _ in range(order.num_chunks)]
    hop = data.draw(st.sampled_from([0.0, 0.125, 2.0]))
    check(order, durations, hop)


@pytest.mark.parametrize(("p", "m"), [(1, 3), (2, 4), (3, 7), (4, 8), (6, 14), (8, 32)])
@pytest.mark.parametrize("stage", [(1.0, 2.0, 0.5), (2.0, 1.0, 1.0), (1.0, 1.0, 3.0), (0.5, 4.0, 0.25)])
@pytest.mark.parametrize("name", V_SHAPED)
def test_a_v_under_unequal_durations(name: str, p: int, m: int, stage: tuple[float, float, float]) -> None:
    """Heavier ends as well: embedding and head share a rank there."""
    if applicable(name, p, m, 2) is not None:
        pytest.skip("needs more micro-batches")
    order = build_order(name, p, m, 2)
    plain = [ChunkDurations(*stage)] * order.num_chunks
    ends = [ChunkDurations(3.0, 1.0, 2.0), *plain[1:-1], ChunkDurations(2.0, 5.0, 1.0)]
    for durations in (plain, ends):
        for hop in (0.0, 0.25):
            check(order, durations, hop)


def check(order: Order, durations: list[ChunkDurations], hop: float) -> None:
    seconds = {
        "F": [d.forward for d in durations],
        "B": [d.backward_input for d in durations],
        "W": [d.backward_weight for d in durations],
    }
    spans, most = simulate(order, seconds, hop)
    timeline = execute(order, durations, hop)
    assert timeline.makespan == max(end for _, end in spans.values())
    for kind, microbatch, chunk, start, end in (span for row in timeline.spans for span in row):
        parts = [spans[part, microbatch, chunk] for part in kind]
        assert (start, end) == (parts[0][0], parts[-1][1])
    assert list(peak_in_flight(order)) == most
