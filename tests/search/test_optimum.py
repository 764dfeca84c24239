"""How far each schedule is from the best possible one under its own memory: a constraint solver proves the optimum."""

from __future__ import annotations

from collections import Counter

import pytest

from windtunnel.errors import LegalityError
from windtunnel.schedule.action import Action, Order
from windtunnel.schedule.in_flight import peak_in_flight
from windtunnel.schedule.registry import build_order
from windtunnel.search.optimum import Gap, gap, optimum
from windtunnel.step.timeline import ChunkDurations, execute

pytest.importorskip("ortools.sat.python.cp_model")


def slots(order: Order) -> list[ChunkDurations]:
    """F = B = W = 1 of a chunk."""
    return [ChunkDurations(1.0, 1.0, 1.0)] * order.num_chunks


def parts(row: tuple[Action, ...]) -> Counter[tuple[str, int, int]]:
    """A whole backward among split ones counts as its two parts."""
    return Counter((part, microbatch, chunk) for kind, microbatch, chunk in row for part in kind)


def against_optimum(name: str, p: int, m: int, v: int = 1) -> Gap:
    order = build_order(name, p, m, v, memory_cap=p)
    return gap(order, slots(order), 0.0, None, time_limit=120.0)


@pytest.mark.parametrize(("cap", "span"), [(4, 27), (7, 24)])
def test_the_published_zero_bubble_optima(cap: int, span: int) -> None:
    """Qi et al., 2024: p = 4, m = 8 without bubble at twice the memory of 1F1B less one."""
    order = build_order("zb_h1", 4, 8)
    best = optimum(order, slots(order), 0.0, cap, objective="span", time_limit=120.0)
    assert best.proven
    assert best.makespan == span


@pytest.mark.parametrize(
    ("p", "m", "cap", "above"), [(3, 6, 2, 0), (4, 8, 2, 0), (4, 8, 3, 2), (4, 8, 5, 0), (4, 8, 7, 0)]
)
def test_the_heuristic_under_caps_below_and_above_the_stages(p: int, m: int, cap: int, above: int) -> None:
    order = build_order("zb_heuristic", p, m, memory_cap=cap)
    found = gap(order, slots(order), 0.0, cap, time_limit=120.0)
    assert found.best.proven
    assert found.above == above


GAPS = {
    ("gpipe", 3, 6, 1): 0, ("1f1b", 3, 6, 1): 0, ("looped_bfs", 2, 4, 2): 0, ("interleaved_1f1b", 2, 4, 2): 0,
    ("zb_h1", 3, 6, 1): 0, ("zb_heuristic", 3, 6, 1): 0, ("interleaved_zb", 2, 4, 2): 0, ("zbv", 2, 4, 2): 0,
    ("v_half", 2, 4, 2): 0, ("v_min", 2, 4, 2): 1, ("dualpipe", 2, 4, 1): 0, ("dualpipe_v", 2, 4, 2): 1,
    ("1f1b_ep_overlap", 2, 4, 2): 0,
}  # fmt: skip
"""Slots of a chunk above the optimum."""


@pytest.mark.parametrize(("name", "p", "m", "v"), GAPS)
def test_no_schedule_beats_the_optimum_and_its_gap_is_known(name: str, p: int, m: int, v: int) -> None:
    found = against_optimum(name, p, m, v)
    assert found.best.proven
    assert found.above == GAPS[name, p, m, v]


@pytest.mark.parametrize(("name", "p", "m", "v"), GAPS)
def test_the_optimum_is_an_order_that_runs(name: str, p: int, m: int, v: int) -> None:
    """It takes what it says under the executor, keeps to the cap, and has the actions of the schedule."""
    schedule, found = build_order(name, p, m, v, memory_cap=p), against_optimum(name, p, m, v)
    best = found.best.order
    assert execute(best, slots(best)).makespan == found.best.makespan
    assert max(peak_in_flight(best)) <= found.memory_cap
    for ours, theirs in zip(schedule.actions, best.actions, strict=True):
        assert parts(ours) == parts(theirs)


def test_unequal_durations_and_hops_are_weighed() -> None:
    order = build_order("zb_heuristic", 3, 5, memory_cap=2, costs=(1.0, 1.5, 0.7, 0.3))
    found = gap(order, [ChunkDurations(1.0, 1.5, 0.7)] * 3, 0.3, 2.0, time_limit=120.0)
    assert found.best.proven
    assert found.makespan == pytest.approx(28.3)
    assert found.best.makespan == pytest.approx(28.2)
    assert max(peak_in_flight(found.best.order)) <= 2


def test_shares_of_a_stage_are_whole_ticks() -> None:
    order = build_order("interleaved_1f1b", 2, 2, 3)
    found = gap(order, [ChunkDurations(1 / 3, 1 / 3, 1 / 3)] * 6, 0.0, None, time_limit=120.0)
    assert found.best.proven
    assert found.above == pytest.approx(0.0, abs=1e-12)


def test_more_memory_never_lengthens_the_optimum() -> None:
    order = build_order("zb_h1", 3, 5)
    spans = [optimum(order, slots(order), 0.0, cap).makespan for cap in (1, 2, 3, 4, 5)]
    assert spans == sorted(spans, reverse=True)


@pytest.mark.parametrize("seconds", [0.001, 0.5])
def test_a_search_cut_short_says_what_it_knows(seconds: float) -> None:
    order = build_order("zbv", 4, 12)
    found = gap(order, slots(order), 0.0, None, time_limit=seconds)
    assert found.best.bound <= found.best.makespan <= found.makespan
    assert found.above_at_most >= found.above >= 0


def test_a_search_cut_short_does_not_pass_off_an_order_that_is_too_big() -> None:
    order = build_order("zbv", 4, 12)
    with pytest.raises(LegalityError, match="seconds"):
        optimum(order, slots(order), 0.0, 2.0, time_limit=0.001)


def test_no_room_for_one_micro_batch() -> None:
    order = build_order("zb_h1", 2, 2)
    with pytest.raises(LegalityError, match="memory cap"):
        optimum(order, slots(order), 0.0, 0.0)
