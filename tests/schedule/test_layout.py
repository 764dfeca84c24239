"""Layouts: text, even and silent splits, stage counts, costs and exact balance."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.errors import FormatError, LegalityError
from windtunnel.job.plan import Chunk
from windtunnel.schedule.balance import ChunkMemory, Held
from windtunnel.schedule.layout import (
    balanced_layout,
    cost_layout,
    counts_layout,
    even_layout,
    first_last_layout,
    from_layers_per_stage,
    layout_text,
    minimax_cut,
    parse_layout,
    silent_layout,
)
from windtunnel.schedule.registry import placement


def counts(layout: tuple[Chunk, ...]) -> list[int]:
    return [len(chunk.layers) for chunk in layout]


def check_sound(layout: tuple[Chunk, ...], num_layers: int) -> None:
    """Layer ids run through in order; embedding first, head last, once each."""
    assert [layer for chunk in layout for layer in chunk.layers] == list(range(num_layers))
    assert [chunk.embedding for chunk in layout] == [True] + [False] * (len(layout) - 1)
    assert [chunk.head for chunk in layout] == [False] * (len(layout) - 1) + [True]


@pytest.mark.parametrize(
    ("text", "pp", "v", "layers", "mtp", "per_chunk"),
    [
        ("Et*4|(t*4|)*14tmL", 8, 2, 61, 1, [4] * 15 + [1]),
        ("Et|t|(tt|)*29,tL", 16, 2, 61, 0, [1, 1] + [2] * 29 + [1]),
        ("Et*16|(t*16|)*2t*13mL", 4, 1, 61, 1, [16, 16, 16, 13]),
        ("Et*2|(t*2|)*34,t*3|(t*2|)*3,tL", 8, 5, 80, 0, [2] * 35 + [3] + [2] * 3 + [1]),
        ("Et|(tt|)*30 L", 16, 2, 61, 0, [1] + [2] * 30 + [0]),
        ("Et|(t*2|)*1L", 3, 1, 3, 0, [1, 2, 0]),
        ("EtmmL", 1, 1, 1, 2, [1]),
        ("E((t|)*2)*1L", 3, None, 2, 0, [1, 1, 0]),
    ],
)
def test_text_of_published_layouts(
    text: str, pp: int, v: int | None, layers: int, mtp: int, per_chunk: list[int]
) -> None:
    layout = parse_layout(text, pp, num_layers=layers, num_mtp_layers=mtp, virtual_stages=v)
    assert counts(layout) == per_chunk
    assert layout[-1].num_mtp_layers == mtp
    check_sound(layout, layers)


def test_compact_text() -> None:
    assert layout_text(counts_layout([4] * 15 + [1], num_mtp_layers=1)) == "Et*4|(t*4|)*14tmL"
    assert layout_text(counts_layout([1, 2, 2, 0])) == "Et|(tt|)*2L"
    assert layout_text(counts_layout([3])) == "Et*3L"


@given(per_chunk=st.lists(st.integers(0, 9), min_size=1, max_size=24), mtp=st.integers(0, 3))
def test_text_round_trips(per_chunk: list[int], mtp: int) -> None:
    layout = counts_layout(per_chunk, num_mtp_layers=mtp)
    read = parse_layout(layout_text(layout), 1, num_layers=sum(per_chunk), num_mtp_layers=mtp)
    assert read == layout


@pytest.mark.parametrize(
    ("text", "pp", "v", "words"),
    [
        ("Et*3|tL", 3, None, "2 chunks are no multiple of the 3"),
        ("Et*3|tL", 2, 2, "2 chunks are not 2 stages × 2"),
        ("Et*2|tL", 2, None, "the model has 4 layers, the layout 3"),
        ("t*2|ttL", 2, None, "one E is due, found 0"),
        ("Et*2|Ett", 2, None, "one L is due, found 0"),
        ("Et*2|EttL", 2, None, "one E is due, found 2"),
        ("tEt|ttL", 2, None, "E opens the first chunk"),
        ("EttL|tt", 2, None, "L closes the last chunk"),
        ("Ett|ttmL", 2, None, "0 MTP layers, the layout 1"),
        ("Emt*2|ttL", 2, None, "MTP layers follow"),
        ("Ex*4L", 1, None, "'x' is no part of a layout"),
        ("E(t*4L", 1, None, "a \\( has no \\)"),
        ("Et*4)L", 1, None, "a \\) has no \\("),
        ("*4tL", 1, None, "nothing before it"),
        ("Et*999999999L", 1, None, "more than"),
        ("E((t*1000)*1000)*1000L", 1, None, "more than"),
        ("Et*4L*", 1, None, "no part of a layout"),
        ("", 1, None, "one E is due"),
    ],
)
def test_text_that_is_no_layout(text: str, pp: int, v: int | None, words: str) -> None:
    with pytest.raises(FormatError, match=words) as caught:
        parse_layout(text, pp, num_layers=4, virtual_stages=v)
    assert caught.value.faults[0].path == "plan.pipeline.layout"


def test_all_faults_of_a_text_come_at_once() -> None:
    with pytest.raises(FormatError) as caught:
        parse_layout("t*3|m", 4, num_layers=4)
    assert len(caught.value.faults) == 5


def test_even_splits() -> None:
    assert counts(even_layout(32, 8)) == [4] * 8
    assert counts(even_layout(126, 16, count_embedding=True, count_head=True)) == [7] + [8] * 14 + [7]
    assert counts(even_layout(31, 4, count_head=True)) == [8, 8, 8, 7]
    assert counts(even_layout(30, 1, count_embedding=True, count_head=True)) == [30]
    assert even_layout(4, 2, num_mtp_layers=1)[-1] == Chunk(layers=(2, 3), head=True, num_mtp_layers=1)
    with pytest.raises(LegalityError, match=r"126 layers \+ head = 127"):
        even_layout(126, 16, count_head=True)


@pytest.mark.parametrize(
    ("layers", "chunks", "per_chunk"),
    [
        (32, 8, [4] * 8),
        (126, 16, [7] + [8] * 14 + [7]),
        (31, 4, [8, 8, 8, 7]),
        (61, 16, [4] * 15 + [1]),
        (10, 8, [2] * 5 + [0] * 3),
    ],
)
def test_silence(layers: int, chunks: int, per_chunk: list[int]) -> None:
    layout = silent_layout(layers, chunks)
    assert counts(layout) == per_chunk
    check_sound(layout, layers)


def test_layers_per_stage() -> None:
    assert counts(from_layers_per_stage([1, 2, 2, 3])) == [1, 2, 2, 3]
    assert counts(from_layers_per_stage([2, 4, 6], 2)) == [1, 2, 3, 1, 2, 3]
    assert counts(from_layers_per_stage([2, 4, 6], 2, placement=placement("zbv", 3))) == [1, 2, 3, 3, 2, 1]
    assert counts(from_layers_per_stage([2, 4], placement=placement("dualpipe", 2))) == [2, 4]
    with pytest.raises(LegalityError, match="stage 1 has 3 layers") as caught:
        from_layers_per_stage([2, 3], 2, num_layers=6)
    assert "sum" in str(caught.value)


def test_first_and_last_stage() -> None:
    assert counts(first_last_layout(61, 16, last=1)) == [4] * 15 + [1]
    assert counts(first_last_layout(30, 4, first=6, last=8)) == [6, 8, 8, 8]
    assert counts(first_last_layout(16, 2, first=6, last=10, virtual_stages=2)) == [3, 5, 3, 5]
    for first, last in ((6, 7), (15, 15), (0, 8), (31, None)):
        with pytest.raises(LegalityError, match="middle stages"):
            first_last_layout(30, 4, first=first, last=last)
    with pytest.raises(LegalityError, match="multiple of 2"):
        first_last_layout(28, 4, first=7, last=7, virtual_stages=2)


def test_cuts_by_cost_close_a_stage_once_it_exceeds_its_share() -> None:
    assert counts(cost_layout([1.0] * 32, 4)) == [9, 8, 8, 7]
    assert counts(cost_layout([1.0] * 32, 4, head_cost=2.0)) == [9, 9, 8, 6]
    assert counts(cost_layout([3.0] * 4, 1, head_cost=9.0)) == [4]


@given(
    weights=st.lists(st.integers(0, 20), min_size=1, max_size=9),
    parts=st.integers(1, 5),
)
def test_balance_is_exact(weights: list[int], parts: int) -> None:
    parts = min(parts, len(weights))
    bounds = ([0, *inner, len(weights)] for inner in combinations(range(1, len(weights)), parts - 1))
    best = min(max(sum(weights[a:b]) for a, b in pairwise(cut)) for cut in bounds)
    lengths = minimax_cut(weights, parts)
    assert sum(lengths) == len(weights)
    assert min(lengths) >= 1
    ends = [sum(lengths[: k + 1]) for k in range(parts)]
    heaviest = max(sum(weights[end - length : end]) for length, end in zip(lengths, ends, strict=True))
    assert heaviest == best


def roomy(cuts: Sequence[int], memory: ChunkMemory) -> bool:
    """Whether the layers of every chunk fit it, the ends of the model counted in."""
    start, last = 0, len(cuts) - 1
    for part, count in enumerate(cuts):
        items = [*memory.layers[start : start + count]]
        items += [memory.embedding] * (part == 0) + [memory.head] * (part == last)
        if sum(i.static + memory.in_flight[part] * i.kept for i in items) > memory.room[part]:
            return False
        start += count
    return True


@given(
    layers=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9), st.integers(0, 3)), min_size=1, max_size=8),
    room=st.lists(st.integers(5, 60), min_size=1, max_size=4),
    ends=st.tuples(st.integers(0, 9), st.integers(0, 9)),
    data=st.data(),
)
def test_balance_within_memory_is_exact(
    layers: list[tuple[int, int, int]], room: list[int], ends: tuple[int, int], data: st.DataObject
) -> None:
    """Against every cut there is; unequal layers, and fewer micro-batches alive on later chunks."""
    parts = min(len(room), len(layers))
    memory = ChunkMemory(
        layers=[Held(static=static, kept=kept) for _, static, kept in layers],
        in_flight=[data.draw(st.integers(1, 4)) for _ in range(parts)],
        room=room[:parts],
        embedding=Held(static=ends[0]),
        head=Held(static=ends[1]),
    )
    weights = [float(weight) for weight, _, _ in layers]
    cuts = (
        [b - a for a, b in pairwise((0, *inner, len(layers)))]
        for inner in combinations(range(1, len(layers)), parts - 1)
    )
    fitting = [cut for cut in cuts if roomy(cut, memory)]
    if not fitting:
        with pytest.raises(LegalityError, match="within its memory"):
            balanced_layout(weights, parts, memory=memory)
        return

    def heaviest(cut: Sequence[int]) -> float:
        ends = [sum(cut[: k + 1]) for k in range(len(cut))]
        return max(sum(weights[end - count : end]) for count, end in zip(cut, ends, strict=True))

    found = counts(balanced_layout(weights, parts, memory=memory))
    assert roomy(found, memory)
    assert all(memory.holds(cut) == roomy(cut, memory) for cut in (found, *fitting))
    assert heaviest(found) == min(map(heaviest, fitting))


def test_memory_moves_layers_to_later_stages() -> None:
    """1F1B keeps four micro-batches on the first stage and one on the last."""
    free = balanced_layout([1.0] * 16, 4)
    held = ChunkMemory(layers=[Held(static=1.0, kept=1.0)] * 16, in_flight=[4, 3, 2, 1], room=[15.0] * 4)
    assert counts(free) == [4] * 4
    assert counts(balanced_layout([1.0] * 16, 4, memory=held)) == [3, 3, 5, 5]


def test_balance_of_a_large_model_is_quick() -> None:
    begun = process_time()
    memory = ChunkMemory(layers=[Held(static=1.0, kept=1.0)] * 160, in_flight=[1.0] * 64, room=[8.0] * 64)
    layout = balanced_layout([1.0 + 0.01 * (i % 7) for i in range(160)], 64, head_weight=1.5, memory=memory)
    check_sound(layout, 160)
    assert process_time() - begun < 2.0


def test_balanced_layouts() -> None:
    assert counts(balanced_layout([1.0] * 30, 4)) == [6, 8, 8, 8]
    assert counts(balanced_layout([1.0] * 8, 4, head_weight=2.0)) == [1, 3, 3, 1]
    assert counts(balanced_layout([1.0] * 16, 4, embedding_weight=0.5, head_weight=1.5)) == [3, 5, 5, 3]
    assert counts(balanced_layout([1.0] * 4, 5, head_weight=9.0)) == [1, 1, 1, 1, 0]
    assert counts(balanced_layout([1.0] * 2, 4)) == [1, 0, 0, 1]
    check_sound(balanced_layout([1.0] * 61, 16, head_weight=3.0, num_mtp_layers=1), 61)
