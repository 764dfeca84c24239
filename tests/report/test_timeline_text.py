"""The drawing of a step: a row a stage, a letter a slice of time, never wider than 100 columns."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console

from windtunnel.memory.over_time import Alive, Point
from windtunnel.report.timeline import COLUMNS, MOST_ROWS, memory_timeline_text, timeline_document, timeline_text
from windtunnel.schedule.registry import build_order
from windtunnel.step.streams import COMPUTE, OPTIMIZER, REDUCE, STRAGGLERS, StreamSpan
from windtunnel.step.timeline import ChunkDurations, execute

GIB = 2.0**30
STEP = (
    StreamSpan(0, COMPUTE, "forward", 0.0, 0.5, 0, 0),
    StreamSpan(0, COMPUTE, "recompute", 0.75, 1.0, 0, 0),
    StreamSpan(0, COMPUTE, "backward", 1.0, 1.25, 0, 0),
    StreamSpan(0, COMPUTE, "weight gradients", 1.25, 1.5, 0, 0),
    StreamSpan(0, REDUCE, "gradient reduction", 1.0, 1.5),
    StreamSpan(0, REDUCE, "gradient reduction, exposed", 1.5, 1.75, exposed=True),
    StreamSpan(0, OPTIMIZER, "optimizer", 1.75, 1.9),
    StreamSpan(0, OPTIMIZER, STRAGGLERS, 1.9, 2.0),
)


def drawn(screen: object) -> list[str]:
    console = Console(width=100, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(screen)
    return capture.get().splitlines()


def row(lines: list[str], stage: int) -> str:
    """The drawing of one stage, without its number and its peak."""
    line = next(line for line in lines if line.split()[:1] == [str(stage)])
    return line[line.index(str(stage)) + len(str(stage)) + 1 :][:COLUMNS]


@pytest.fixture
def lines(projection):
    return drawn(timeline_text(projection, [STEP, STEP[:1]]))


def test_letters_follow_one_another_as_the_spans_do(lines):
    letters = row(lines, 0)
    assert len(letters) == COLUMNS
    assert "".join(dict.fromkeys(letters)) == "F·RBWDOS"
    assert "".join(sorted(letters, key="F·RBWDOS".index)) == letters


def test_a_letter_has_the_share_of_its_seconds(lines):
    """Within the two columns that its ends share with its neighbours."""
    shares = {"F": 0.25, "·": 0.125, "R": 0.125, "B": 0.125, "W": 0.125, "D": 0.125, "O": 0.075, "S": 0.05}
    for letter, share in shares.items():
        assert abs(row(lines, 0).count(letter) - share * COLUMNS) <= 2


def test_the_legend_explains_what_is_drawn_and_nothing_else(projection, lines):
    assert "recompute" in " ".join(lines)
    short = drawn(timeline_text(projection, [STEP[:1], STEP[:1]]))
    assert "recompute" not in " ".join(short)


def test_the_peak_of_each_stage_is_at_the_right(projection, lines):
    for stage in projection.memory.stages:
        assert f"{stage.device / GIB:.1f} GiB" in next(x for x in lines if x.split()[:1] == [str(stage.stage)])


def test_the_axis_spans_the_step(lines):
    axis = next(line for line in lines if line.split()[:1] == ["stage"])
    assert axis.split() == ["stage", "0", "500", "ms", "1", "s", "1.5", "s", "2", "s"]


def test_many_stages_are_sampled_from_the_first_to_the_last(projection):
    stages = 100
    timeline = execute(build_order("1f1b", stages, 2), [ChunkDurations(1, 1, 1)] * stages)
    one = projection.memory.stages[0]
    held = tuple(replace(one, stage=stage) for stage in range(stages))
    many = replace(projection, timeline=timeline, memory=replace(projection.memory, stages=held))
    shown = drawn(timeline_text(many, [STEP] * stages))
    numbers = [int(line.split()[0]) for line in shown if line.endswith("GiB")]
    assert len(numbers) == MOST_ROWS
    assert (numbers[0], numbers[-1]) == (0, stages - 1)
    assert f"{stages - MOST_ROWS} stages" in shown[-1]
    assert max(map(len, shown)) <= 100


def test_the_document_holds_every_span(projection):
    first, second = timeline_document(projection, [STEP, STEP[:1]])
    assert (len(first["spans"]), len(second["spans"])) == (len(STEP), 1)
    assert first["spans"][0] == {
        "stream": "compute", "name": "forward", "start": 0.0, "end": 0.5, "microbatch": 0, "chunk": 0,
    }  # fmt: skip


def alive() -> Alive:
    return Alive(
        time=1.0, moment="backward", in_flight=2.0, weights=10 * GIB, gradients=0.0, master=0.0, moments=0.0,
        activations=30 * GIB, logits=0.0, buffers=0.0, dispatcher=0.0,
    )  # fmt: skip


def test_memory_is_drawn_with_its_peak_marked(projection):
    points = [Point(0.0, 20 * GIB), Point(1.0, 40 * GIB), Point(1.5, 10 * GIB)]
    shown = drawn(memory_timeline_text(projection, points, alive()))
    assert len(shown) <= 20
    assert max(map(len, shown)) <= 100
    mark = next(line for line in shown if line.strip() == "▲")
    assert mark.index("▲") == len("999.9 GiB ") + COLUMNS // 2
    top = next(line for line in shown if "40.0 GiB" in line)
    assert top.index("█") == mark.index("▲")
    assert top.count("█") == round(0.25 * COLUMNS + 0.5)
    assert "activations 30.00" in shown[-1]
    assert "gradients" not in shown[-1]
