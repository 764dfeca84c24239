"""Makespans and peaks that have a formula, at no communication."""

from __future__ import annotations

import pytest

from windtunnel.schedule.in_flight import peak_in_flight, peaks
from windtunnel.schedule.registry import build_order
from windtunnel.step.bubble import bubble_fraction
from windtunnel.step.timeline import ChunkDurations, Timeline, execute

SIZES = [(1, 1), (1, 5), (2, 3), (4, 4), (4, 8), (8, 32), (16, 128)]
DURATIONS = [(1.0, 1.0, 1.0), (1.0, 1.25, 0.75), (2.0, 1.0, 1.0)]


def run(name: str, p: int, m: int, v: int = 1, stage: tuple[float, float, float] = (1.0, 1.0, 1.0)) -> Timeline:
    order = build_order(name, p, m, v)
    parts = order.virtual_stages
    return execute(order, [ChunkDurations(*(seconds / parts for seconds in stage))] * order.num_chunks, 0.0)


@pytest.mark.parametrize("stage", DURATIONS)
@pytest.mark.parametrize(("p", "m"), [*SIZES, (4, 2), (8, 3)])
@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_fill_and_drain(name: str, p: int, m: int, stage: tuple[float, float, float]) -> None:
    timeline = run(name, p, m, stage=stage)
    assert timeline.makespan == pytest.approx((m + p - 1) * sum(stage))
    assert bubble_fraction(timeline) == pytest.approx((p - 1) / (m + p - 1))
    held = [m] * p if name == "gpipe" else [min(p - r, m) for r in range(p)]
    assert list(peak_in_flight(timeline.order)) == held


@pytest.mark.parametrize("stage", DURATIONS)
@pytest.mark.parametrize(("p", "m", "v"), [(2, 4, 3), (4, 8, 2), (4, 8, 4), (4, 4, 2), (8, 32, 2), (16, 128, 2)])
def test_interleaving_divides_the_bubble(p: int, m: int, v: int, stage: tuple[float, float, float]) -> None:
    timeline = run("interleaved_1f1b", p, m, v, stage)
    assert timeline.makespan == pytest.approx(m * sum(stage) + (p - 1) * sum(stage) / v)
    assert bubble_fraction(timeline) == pytest.approx((p - 1) / (m * v + p - 1))
    held = [m if m == p else min(max(p + (p - 1) / v - 2 * r / v, 1 / v), m) for r in range(p)]
    assert list(peak_in_flight(timeline.order)) == pytest.approx(held)


@pytest.mark.parametrize(("p", "m", "v", "group"), [(4, 10, 2, 6), (4, 12, 3, 6), (2, 5, 2, 3)])
def test_the_first_rank_holds_its_warm_up_and_one_chunk(p: int, m: int, v: int, group: int) -> None:
    order = build_order("interleaved_1f1b", p, m, v, microbatch_group_size=group)
    assert peak_in_flight(order)[0] * v == min(2 * (p - 1) + (v - 1) * group + 1, m * v)


@pytest.mark.parametrize("stage", DURATIONS)
@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8), (8, 32), (16, 32)])
def test_zero_bubble(p: int, m: int, stage: tuple[float, float, float]) -> None:
    forward, backward, weight = stage
    timeline = run("zb_h1", p, m, stage=stage)
    assert timeline.makespan == pytest.approx(m * sum(stage) + (p - 1) * (forward + backward - weight))
    assert peak_in_flight(timeline.order) == (p,) * p


@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8), (4, 16), (8, 32), (16, 64)])
def test_zbv(p: int, m: int) -> None:
    timeline = run("zbv", p, m)
    assert timeline.makespan == pytest.approx(3 * m + (p - 1) / 2)
    assert bubble_fraction(timeline) == pytest.approx((p - 1) / (p - 1 + 6 * m))
    assert peak_in_flight(timeline.order) == (p,) * p


@pytest.mark.parametrize(("name", "peak"), [("v_half", {4: 3, 8: 5}), ("v_min", {4: 2, 8: 4})])
def test_controllable_memory(name: str, peak: dict[int, int]) -> None:
    for p, most in peak.items():
        assert max(peak_in_flight(build_order(name, p, 4 * p))) == most


@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8), (4, 10), (8, 16), (8, 20), (16, 64)])
def test_dualpipe(p: int, m: int) -> None:
    """(p/2-1)(F&B + BW - 3W) with the pair as long as its parts: DeepSeek's table."""
    timeline = run("dualpipe", p, m)
    assert timeline.makespan == pytest.approx(3 * m + (p / 2 - 1) * 2)
    assert peak_in_flight(timeline.order) == (p + 1,) * p


@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8), (4, 9), (8, 16), (16, 64)])
def test_dualpipe_v(p: int, m: int) -> None:
    timeline = run("dualpipe_v", p, m)
    assert timeline.makespan == pytest.approx(3 * m + (p - 1))
    assert peak_in_flight(timeline.order) == (p + 0.5,) * p


@pytest.mark.parametrize(("p", "m", "v"), [(1, 4, 1), (4, 8, 1), (8, 32, 1), (4, 8, 2), (8, 32, 2)])
def test_pairing_expert_traffic_keeps_the_makespan(p: int, m: int, v: int) -> None:
    assert run("1f1b_ep_overlap", p, m, v).makespan == pytest.approx(m * 3 + (p - 1) * 3 / v)


@pytest.mark.parametrize(("p", "m", "v"), [(4, 8, 2), (8, 16, 2), (4, 16, 4)])
def test_splitting_the_backward_shortens_interleaving(p: int, m: int, v: int) -> None:
    assert run("interleaved_zb", p, m, v).makespan < run("interleaved_1f1b", p, m, v).makespan


def test_looped_bfs_holds_every_chunk_of_every_micro_batch() -> None:
    assert peak_in_flight(build_order("looped_bfs", 4, 8, 2)) == (8.0,) * 4
    assert peaks(build_order("looped_bfs", 4, 8, 2)) == (((8, 8),),) * 4


def test_interleaved_peaks_by_chunk() -> None:
    assert peaks(build_order("interleaved_1f1b", 4, 8, 2))[0] == ((7, 4), (8, 3))
    assert peaks(build_order("1f1b", 4, 8)) == (((4,),), ((3,),), ((2,),), ((1,),))


def test_more_chunks_can_lose_to_communication() -> None:
    def makespan(v: int) -> float:
        name = "1f1b" if v == 1 else "interleaved_1f1b"
        return execute(build_order(name, 4, 8, v), [ChunkDurations(1 / v, 1 / v, 1 / v)] * (4 * v), 0.3).makespan

    assert [makespan(v) for v in (1, 2, 4)] == pytest.approx([37.8, 32.7, 35.85])
