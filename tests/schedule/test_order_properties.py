"""What holds for every schedule and every size."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from windtunnel.schedule.action import Order
from windtunnel.schedule.in_flight import peak_in_flight, peaks
from windtunnel.schedule.registry import applicable, build_order, find, schedule_names
from windtunnel.step.timeline import ChunkDurations, execute, makespan_only

GENERATED = [name for name in schedule_names() if name != "custom"]


@st.composite
def orders(draw: st.DrawFn, name: str) -> Order:
    p = draw(st.integers(1, 16))
    if name.startswith("dualpipe"):
        p = 2 * draw(st.integers(1, 8))
    v = find(name).virtual_stages or draw(st.integers(find(name).min_virtual_stages, 4))
    sizes = [m for m in range(1, 65) if applicable(name, p, m, v) is None]
    assume(sizes)
    m = draw(st.sampled_from(sizes))
    groups = [g for g in range(p, max(p, m) + 1) if applicable(name, p, m, v, microbatch_group_size=g) is None]
    group = draw(st.sampled_from([None, *groups]))
    cap = draw(st.none() | st.integers(1, p))
    return build_order(name, p, m, v, microbatch_group_size=group, memory_cap=cap)


def check_every_action_once(order: Order) -> None:
    seen: Counter[tuple[str, int, int]] = Counter()
    for row, held in zip(order.actions, order.placement, strict=True):
        for kind, microbatch, chunk in row:
            for part in kind:
                seen[part, microbatch, held[chunk]] += 1
    wanted = {(k, i, c) for k in "FBW" for i in range(order.num_microbatches) for c in range(order.num_chunks)}
    assert set(seen) == wanted
    assert set(seen.values()) == {1}


def check_dependencies(order: Order, durations: list[ChunkDurations], hop: float) -> None:
    """Ends of producers plus the hop come before starts, ranks run one thing at a time and nothing takes longer."""
    timeline = execute(order, durations, hop)
    start: dict[tuple[str, int, int], tuple[int, float]] = {}
    end: dict[tuple[str, int, int], tuple[int, float]] = {}
    for rank, row in enumerate(timeline.spans):
        clock = 0.0
        for span in row:
            assert span.start >= clock - 1e-9
            clock = span.end
            for part in span.kind:
                start[part, span.microbatch, span.chunk] = (rank, span.start)
                end[part, span.microbatch, span.chunk] = (rank, span.end)
    last = order.num_chunks - 1
    for (kind, i, chunk), (rank, begun) in start.items():
        needs = {
            "F": [("F", i, chunk - 1)] * (chunk > 0),
            "B": [("F", i, chunk)] + [("B", i, chunk + 1)] * (chunk < last),
            "W": [("F", i, chunk)],
        }[kind]
        for needed in needs:
            source, done = end[needed]
            assert begun >= done + hop * (source != rank) - 1e-9


def check_bounds(order: Order, durations: list[ChunkDurations], hop: float) -> None:
    """No step is shorter than its busiest rank, nor than one micro-batch through the whole model and back."""
    makespan = max(makespan_only(order, durations, hop))
    busy = [
        sum(
            durations[held[a.chunk]].forward * (a.kind == "F")
            + durations[held[a.chunk]].backward_input * (a.kind in ("B", "BW"))
            + durations[held[a.chunk]].backward_weight * (a.kind in ("W", "BW"))
            for a in row
        )
        for row, held in zip(order.actions, order.placement, strict=True)
    ]
    assert makespan >= max(busy) - 1e-9
    assert makespan >= sum(d.forward + d.backward_input for d in durations) - 1e-9


@pytest.mark.parametrize("name", GENERATED)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_orders_are_complete_and_run(name: str, data: st.DataObject) -> None:
    order = data.draw(orders(name))
    seconds = st.floats(0.25, 4.0)
    durations = [
        ChunkDurations(data.draw(seconds), data.draw(seconds), data.draw(seconds)) for _ in range(order.num_chunks)
    ]
    hop = data.draw(st.sampled_from([0.0, 0.125]))
    check_every_action_once(order)
    check_dependencies(order, durations, hop)
    check_bounds(order, durations, hop)


@pytest.mark.parametrize("name", GENERATED)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_peaks_bound_every_moment(name: str, data: st.DataObject) -> None:
    """No moment weighs more than the heaviest peak, whatever a micro-batch of a chunk keeps."""
    order = data.draw(orders(name))
    weights = data.draw(st.lists(st.integers(0, 100), min_size=4, max_size=4))
    for row, held, found in zip(order.actions, order.placement, peaks(order), strict=True):
        alive = [0] * len(held)
        heaviest = most = 0
        for kind, _, chunk in row:
            alive[chunk] += (kind == "F") - (kind in ("W", "BW"))
            heaviest = max(heaviest, sum(a * w for a, w in zip(alive, weights, strict=False)))
            most = max(most, sum(alive))
        assert alive == [0] * len(held)
        assert heaviest == max(sum(a * w for a, w in zip(vector, weights, strict=False)) for vector in found)
        assert most == max(map(sum, found))
    assert max(peak_in_flight(order)) <= order.num_microbatches


@settings(max_examples=50, deadline=None)
@given(p=st.integers(1, 8), m=st.integers(1, 32), cap=st.integers(1, 8))
def test_the_heuristic_keeps_its_cap(p: int, m: int, cap: int) -> None:
    assert max(peak_in_flight(build_order("zb_heuristic", p, m, memory_cap=cap))) <= cap


@settings(max_examples=30, deadline=None)
@given(
    p=st.integers(1, 6),
    m=st.integers(1, 16),
    costs=st.tuples(*[st.sampled_from([0.5, 1.0, 1.25, 2.0])] * 3, st.sampled_from([0.0, 0.25])),
)
def test_more_memory_never_slows_the_heuristic(p: int, m: int, costs: tuple[float, float, float, float]) -> None:
    """The longest rank, from its own first action on, is what the heuristic shortens."""
    spans = []
    for cap in [*range(1, m + 2), None]:
        order = build_order("zb_heuristic", p, m, memory_cap=cap, costs=costs)
        timeline = execute(order, [ChunkDurations(*costs[:3])] * p, costs[3])
        spans.append(max(row[-1].end - row[0].start for row in timeline.spans))
    assert all(after <= before + 1e-9 for before, after in pairwise(spans))
