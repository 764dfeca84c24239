"""Orders spelled by hand, registry behaviour and refusals."""

from __future__ import annotations

from itertools import pairwise

import pytest

from windtunnel.errors import FormatError, LegalityError
from windtunnel.job.plan import V_SCHEDULES
from windtunnel.schedule.action import Action, format_action, parse_action
from windtunnel.schedule.in_flight import peak_in_flight
from windtunnel.schedule.registry import applicable, build_order, find, placement, schedule_names


def spelled(name: str, p: int, m: int, v: int, rank: int) -> str:
    """The row of a rank; ' marks chunk 1."""
    return " ".join(f"{a.kind}{a.microbatch}{chr(39) * a.chunk}" for a in build_order(name, p, m, v).actions[rank])


HAND = [
    ("1f1b", 1, 0, "F0 F1 F2 F3 BW0 F4 BW1 F5 BW2 F6 BW3 F7 BW4 BW5 BW6 BW7"),
    ("1f1b", 1, 3, "F0 BW0 F1 BW1 F2 BW2 F3 BW3 F4 BW4 F5 BW5 F6 BW6 F7 BW7"),
    ("zb_h1", 1, 1, "F0 F1 F2 B0 F3 B1 W0 F4 B2 W1 F5 B3 W2 F6 B4 W3 F7 B5 W4 B6 W5 B7 W6 W7"),
    (
        "interleaved_1f1b", 2, 3,
        "F0 F1 F2 F3 F0' BW0' F1' BW1' F2' BW2' F3' BW3' F4 BW0 F5 BW1 F6 BW2 F7 BW3 F4' BW4' F5' BW5' F6' BW6' F7' "
        "BW7' BW4 BW5 BW6 BW7",
    ),
    (
        "zbv", 2, 3,
        "F0 F0' F1 F1' F2 F2' F3 F3' B0' W0' F4 B0 W0 F4' B1' W1' F5 B1 W1 F5' B2' W2' F6 B2 W2 F6' B3' W3' F7 B3 W3 "
        "F7' B4' W4' B4 B5' B5 B6' B6 B7' B7 W4 W5' W6' W7' W5 W6 W7",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "v", "rank", "row"), HAND)
def test_rows_written_by_hand(name: str, v: int, rank: int, row: str) -> None:
    assert spelled(name, 4, 8, v, rank) == row


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("v_half", "F0 F0' F1 F1' F2 F2' B0' W0' B0 W0 F3 F3' B1' W1' B1 W1"),
        ("v_min", "F0 F0' F1 F1' B0' B0 W0' W0 F2 F2' B1' B1 W1' W1"),
    ],
)
def test_controllable_memory_on_the_turning_rank(name: str, start: str) -> None:
    assert spelled(name, 4, 8, 2, 3).startswith(start)


def test_looped_bfs_finishes_a_chunk_before_the_next() -> None:
    assert spelled("looped_bfs", 2, 2, 2, 0) == "F0 F1 F0' F1' BW1' BW0' BW1 BW0"


def test_all_forwards_come_first_when_every_stage_has_one_micro_batch() -> None:
    for row in build_order("interleaved_1f1b", 4, 4, 2).actions:
        assert [a.kind for a in row] == ["F"] * 8 + ["BW"] * 8


def test_a_group_larger_than_the_pipe_takes_its_micro_batches_at_a_stretch() -> None:
    row = build_order("interleaved_1f1b", 2, 5, 2, microbatch_group_size=3).actions[0]
    forwards = [(a.microbatch, a.chunk) for a in row if a.kind == "F"]
    assert forwards == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1), (3, 0), (4, 0), (3, 1), (4, 1)]
    assert [a.kind for a in row[:6]] == ["F"] * 6  # 2(p-1) + (v-1)N warm-up, then the forward of the first pair
    assert row[6].kind == "BW"


@pytest.mark.parametrize("v", [1, 2])
def test_expert_overlap_pairs_a_forward_with_a_backward_of_an_earlier_micro_batch(v: int) -> None:
    order = build_order("1f1b_ep_overlap", 4, 8, v)
    for row, positions in zip(order.actions, order.overlapped, strict=True):
        for position in positions:
            forward, backward = row[position : position + 2]
            assert (forward.kind, backward.kind) == ("F", "BW")
            assert (forward.microbatch, forward.chunk) != (backward.microbatch, backward.chunk)
        alone = [a for k, a in enumerate(row) if k not in positions and k - 1 not in positions]
        assert [a.kind for a in alone] == sorted((a.kind for a in alone), reverse=True)
    assert order.overlapped[3]


def test_dualpipe_ranks_and_their_mirrors_swap_directions() -> None:
    order = build_order("dualpipe", 4, 8)
    for row, mirror in zip(order.actions, reversed(order.actions), strict=True):
        assert [(a.kind, a.microbatch % 4, 1 - a.chunk) for a in row] == [
            (a.kind, a.microbatch % 4, a.chunk) for a in mirror
        ]
    assert {a.chunk for a in order.actions[0] if a.microbatch < 4} == {0}


def test_tokens_round_trip() -> None:
    for action in (Action("F", 0, 0), Action("BW", 12, 3), Action("W", 7, 1), Action("B", 5, 0)):
        assert parse_action(format_action(action)) == action


@pytest.mark.parametrize("token", ["", "X0.0", "F0", "F.0", "F0.0.1", "F-1.0", "f0.0", "F0.0 B0.0"])
def test_tokens_that_are_no_action(token: str) -> None:
    with pytest.raises(FormatError, match="kind"):
        parse_action(token)


@pytest.mark.parametrize("name", [name for name in schedule_names() if name != "custom"])
def test_a_custom_order_is_what_it_spells_and_finds_its_placement(name: str) -> None:
    v = find(name).virtual_stages or 2
    order = build_order(name, 4, 8, v)
    tokens = [[format_action(a) for a in row] for row in order.actions]
    reread = build_order("custom", 4, 8, v, orders=tokens)
    assert reread.actions == order.actions
    assert reread.placement == order.placement


def test_the_same_request_is_the_same_object() -> None:
    assert build_order("1f1b", 4, 8) is build_order("1f1b", 4, 8, microbatch_group_size=4, memory_cap=3)
    assert build_order("zbv", 4, 8) is build_order("zbv", 4, 8, 2)
    assert build_order("zb_heuristic", 4, 8, memory_cap=4) is not build_order("zb_heuristic", 4, 8, memory_cap=5)


def test_placements_cover_every_chunk_once() -> None:
    for name in schedule_names():
        v = 2 if name in V_SCHEDULES else 1
        held = [chunk for rank in placement(name, 6, v) for chunk in rank]
        assert sorted(held) == (sorted([*range(6)] * 2) if name == "dualpipe" else list(range(6 * v)))
    assert placement("interleaved_1f1b", 4, 2)[1] == (1, 5)
    assert placement("zbv", 4) == ((0, 7), (1, 6), (2, 5), (3, 4))
    assert placement("dualpipe", 4) == ((0, 3), (1, 2), (2, 1), (3, 0))


@pytest.mark.parametrize(
    ("name", "p", "m", "v", "options", "words"),
    [
        ("gpipe", 4, 8, 2, {}, "1 virtual stage"),
        ("interleaved_1f1b", 4, 8, 1, {}, "2 virtual stages"),
        ("interleaved_1f1b", 4, 6, 2, {}, "last group of 2"),
        ("interleaved_1f1b", 4, 3, 2, {}, "4 stages <= micro-batch group size 4 <= 3"),
        ("interleaved_1f1b", 4, 8, 2, {"microbatch_group_size": 3}, "group size 3"),
        ("interleaved_1f1b", 4, 7, 2, {"microbatch_group_size": 5}, "last group of 2"),
        ("zbv", 4, 8, 3, {}, "2 virtual stages"),
        ("zb_heuristic", 4, 8, 1, {"memory_cap": 0}, "memory cap"),
        ("dualpipe", 3, 8, 1, {}, "even"),
        ("dualpipe", 4, 6, 1, {}, "2 micro-batches per stage"),
        ("dualpipe_v", 4, 7, 2, {}, "2 micro-batches per stage"),
        ("custom", 2, 2, 1, {}, "needs orders"),
        ("custom", 2, 1, 1, {"orders": (("F0.0", "BW0.0"),)}, "1 ranks"),
        ("1f1b", 4, 0, 1, {}, "micro-batch"),
        ("1f1b", 0, 4, 1, {}, "stage"),
    ],
)
def test_what_does_not_apply_says_why(
    name: str, p: int, m: int, v: int, options: dict[str, object], words: str
) -> None:
    reason = applicable(name, p, m, v, **options)  # type: ignore[arg-type]
    assert reason is not None
    assert words in reason
    with pytest.raises(LegalityError, match=name):
        build_order(name, p, m, v, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("p", "m", "group"), [(4, 8, None), (4, 4, None), (4, 10, 6), (4, 7, 7), (4, 9, 5), (2, 5, 3)])
def test_what_megatron_allows_applies(p: int, m: int, group: int | None) -> None:
    assert applicable("interleaved_1f1b", p, m, 2, microbatch_group_size=group) is None


def test_unknown_names_are_met_with_the_known_ones() -> None:
    with pytest.raises(FormatError, match="interleaved_1f1b"):
        build_order("1f2b", 4, 8)


def test_zero_bubble_delays_each_rank_a_little_more() -> None:
    order = build_order("interleaved_zb", 4, 8, 2)
    for rank, row in enumerate(order.actions):
        first_weight = next(k for k, a in enumerate(row) if a.kind == "W")
        assert sum(a.kind == "B" for a in row[:first_weight]) == rank + 1
    leads = [next(k for k, a in enumerate(row) if a.kind == "B") for row in order.actions]
    assert [before - after for before, after in pairwise(leads)] == [1, 1, 1]


@pytest.mark.parametrize(("p", "m", "v"), [(4, 4, 2), (4, 8, 2), (4, 16, 3), (8, 16, 2)])
def test_pairing_expert_traffic_adds_one_forward_and_one_chunk_in_flight(p: int, m: int, v: int) -> None:
    """Also at m = p: megatron-core dropped running all forwards first before it could overlap expert traffic."""
    paired = build_order("1f1b_ep_overlap", p, m, v)
    plain = build_order("interleaved_1f1b", p, m, v, all_forward_at_m_equals_p=False)
    for rank in range(p):
        leads = [next(k for k, a in enumerate(o.actions[rank]) if a.kind == "BW") - 1 for o in (plain, paired)]
        assert leads[1] - leads[0] == (leads[0] < m * v - 1)
    gained = [b - a for a, b in zip(peak_in_flight(plain), peak_in_flight(paired), strict=True)]
    assert gained == pytest.approx([0.0 if held == m else 1 / v for held in peak_in_flight(plain)])


def test_a_single_stage_runs_one_forward_before_its_pairs() -> None:
    order = build_order("1f1b_ep_overlap", 1, 4)
    assert " ".join(map(format_action, order.actions[0])) == "F0.0 F1.0 BW0.0 F2.0 BW1.0 F3.0 BW2.0 BW3.0"
    assert order.overlapped == ((1, 3, 5),)
