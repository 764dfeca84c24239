"""Execution of orders: times, transfers, deadlocks."""

from __future__ import annotations

from time import perf_counter

import pytest

from windtunnel.errors import FormatError, LegalityError
from windtunnel.schedule.action import Action, Order
from windtunnel.schedule.registry import build_order
from windtunnel.step.bubble import bubble_fraction
from windtunnel.step.timeline import ChunkDurations, Span, SpanRow, Timeline, execute, makespan_only

UNIT = ChunkDurations(1.0, 1.0, 1.0)


def custom(rows: list[str], num_microbatches: int, virtual_stages: int = 1) -> Order:
    tokens = [row.split() for row in rows]
    return build_order("custom", len(rows), num_microbatches, virtual_stages, orders=tokens)


def test_two_stages_step_by_step() -> None:
    timeline = execute(build_order("1f1b", 2, 2), [UNIT, ChunkDurations(2.0, 1.0, 0.5)], 0.25)
    assert timeline.spans == (
        (
            Span("F", 0, 0, 0.0, 1.0),
            Span("F", 1, 0, 1.0, 2.0),
            Span("BW", 0, 0, 5.0, 7.0),
            Span("BW", 1, 0, 8.5, 10.5),
        ),
        (
            Span("F", 0, 1, 1.25, 3.25),
            Span("BW", 0, 1, 3.25, 4.75),
            Span("F", 1, 1, 4.75, 6.75),
            Span("BW", 1, 1, 6.75, 8.25),
        ),
    )
    assert timeline.makespan == 10.5
    assert [timeline.busy(rank) for rank in (0, 1)] == [6.0, 7.0]
    assert bubble_fraction(timeline) == pytest.approx(1 - 7.0 / 10.5)


def test_a_split_backward_lets_the_next_stage_start_before_the_weights() -> None:
    timeline = execute(build_order("zb_h1", 2, 2), [UNIT] * 2, 0.0)
    first_backward = next(span for span in timeline.spans[0] if span.kind == "B")
    assert first_backward.start == 3.0
    assert timeline.makespan == 7.0


def test_transfers_by_edge_and_none_within_a_rank() -> None:
    """On a V of two ranks the turn (edge 1) is local: its seconds do not count."""
    order = build_order("zbv", 2, 3)
    slow_turn = execute(order, [UNIT] * 4, [0.0, 100.0, 0.0])
    assert slow_turn == execute(order, [UNIT] * 4, 0.0)
    assert execute(order, [UNIT] * 4, [0.5] * 3) == execute(order, [UNIT] * 4, 0.5)
    assert execute(order, [UNIT] * 4, [0.5, 0.0, 0.0]).makespan > slow_turn.makespan


def test_a_pair_starts_and_hands_on_as_one() -> None:
    order = Order("pair", 1, 2, 1, ((Action("F", 0, 0), Action("F", 1, 0), Action("BW", 0, 0), Action("BW", 1, 0)),),
                  ((0,),), ((1,),))  # fmt: skip
    timeline = execute(order, [UNIT], 0.0)
    assert [(span.start, span.end) for span in timeline.spans[0]] == [(0, 1), (1, 2), (2, 4), (4, 6)]
    two = build_order("1f1b_ep_overlap", 2, 6)
    ends = {(s.kind, s.microbatch, s.chunk): s.end for row in execute(two, [UNIT] * 2).spans for s in row}
    starts = {(s.kind, s.microbatch, s.chunk): s.start for row in execute(two, [UNIT] * 2).spans for s in row}
    position = two.overlapped[0][0]
    forward, backward = two.actions[0][position : position + 2]
    assert starts["F", forward.microbatch, 1] >= ends["BW", backward.microbatch, 0]


def test_a_pair_that_waits_for_itself_is_refused() -> None:
    order = Order("pair", 1, 1, 1, ((Action("F", 0, 0), Action("BW", 0, 0)),), ((0,),), ((0,),))
    with pytest.raises(LegalityError, match=r"BW0\.0 needs F0\.0"):
        execute(order, [UNIT])


def test_a_deadlock_names_its_cycle() -> None:
    order = custom(["F0.0 BW0.0 F1.0 BW1.0", "F1.0 F0.0 BW0.0 BW1.0"], 2)
    with pytest.raises(LegalityError) as caught:
        execute(order, [UNIT] * 2)
    text = str(caught.value)
    assert "rank 0 at BW0.0 waits for BW0.0 of rank 1" in text
    assert "rank 1 at F1.0 waits for F1.0 of rank 0" in text


@pytest.mark.parametrize(
    ("rows", "m", "words"),
    [
        (["BW0.0 F0.0"], 1, "F0.0 earlier"),
        (["F0.0 W0.0 B0.0"], 1, "B0.0 earlier"),
        (["F0.0 F0.0 BW0.0"], 1, "second time"),
        (["F0.0 BW0.0 W0.0"], 1, "second time"),
        (["F0.0 B0.0"], 1, "W of micro-batch 0 on global chunk 0"),
        (["F0.0 BW0.0"], 2, "F of micro-batch 1"),
        (["F0.1 BW0.1"], 1, r"1 chunks \(0..0\)"),
        (["F1.0 BW1.0"], 1, r"1 micro-batches \(0..0\)"),
    ],
)
def test_orders_that_cannot_run_say_why(rows: list[str], m: int, words: str) -> None:
    with pytest.raises(LegalityError, match=words):
        execute(custom(rows, m), [UNIT])


def test_a_token_that_is_none_is_named_with_its_place() -> None:
    with pytest.raises(FormatError, match=r"orders\[0\]\[1\]"):
        custom(["F0.0 G0.0"], 1)


def test_the_number_of_transfers_must_fit() -> None:
    with pytest.raises(ValueError, match="3 edges"):
        execute(build_order("1f1b", 4, 4), [UNIT] * 4, [0.0, 0.0])


@pytest.mark.parametrize("name", ["interleaved_1f1b", "dualpipe_v", "1f1b_ep_overlap"])
def test_rank_ends_without_spans_are_those_with_them(name: str) -> None:
    order = build_order(name, 4, 8, 2)
    durations = [ChunkDurations(1.0 + chunk / 8, 1.5, 0.5) for chunk in range(8)]
    timeline = execute(order, durations, 0.125)
    assert makespan_only(order, durations, 0.125) == tuple(row[-1].end for row in timeline.spans)


def test_an_empty_timeline_has_no_bubble() -> None:
    order = Order("empty", 1, 0, 1, ((),), ((0,),))
    assert execute(order, [UNIT]) == Timeline(order, (SpanRow((), (), (), (), ()),))
    assert bubble_fraction(execute(order, [UNIT])) == 0.0


def test_long_pipelines_stay_quick() -> None:
    """262,144 actions, order and dependencies included; generous against busy machines."""
    started = perf_counter()
    assert execute(build_order("1f1b", 64, 2048), [UNIT] * 64).makespan == 3 * (2048 + 63)
    assert perf_counter() - started < 4
