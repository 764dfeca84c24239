"""What a person sees: the answer first, at most 100 columns, nothing left out in silence."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from report_builders import GIB, memory, stage
from rich.console import Console

from windtunnel.job.job import Origin
from windtunnel.projection.compare import compare
from windtunnel.projection.result import Binding, Explanation, Knob
from windtunnel.report.catalog import entry_text, names_text
from windtunnel.report.check import check_text
from windtunnel.report.compare import compare_text
from windtunnel.report.figures import bar, gib, number, percent, shown
from windtunnel.report.memory import memory_table, memory_text, verdict_line
from windtunnel.report.origin import assumed_lines
from windtunnel.report.schedule import schedule_document, schedule_text
from windtunnel.report.text import elasticity_text, explanation_text, projection_text
from windtunnel.report.validate import regressions_text, validate_document, validate_text
from windtunnel.schedule.in_flight import peak_in_flight
from windtunnel.schedule.registry import build_order
from windtunnel.step.timeline import ChunkDurations, execute


def render(*screens) -> str:
    console = Console(file=io.StringIO(), width=100, highlight=False, markup=False, emoji=False)
    for screen in screens:
        console.print(screen)
    return console.file.getvalue()


def test_a_projection(projection):
    text = render(projection_text(projection))
    assert "FITS  62.0 GiB of 80.0 GiB (77.5 %) on stage 0 in backward, 18.0 GiB headroom" in text
    assert "4,000 tokens/s, 1,000 per accelerator" in text
    assert "40.0 % MFU: 400 TFLOP/s of 1 PFLOP/s, attention counted causal half" in text
    assert "hidden behind compute: dp 250 ms" in text
    assert text.index("FITS") < text.index("tokens/s") < text.index("compute")
    assert text.count("warning:") == 2


def test_bars_are_in_proportion(projection):
    lines = render(projection_text(projection)).splitlines()
    length = {name: next(line.count("█") for line in lines if f"  {name} " in line) for name in ("compute", "bubble")}
    assert length == {"compute": 24, "bubble": 10}
    assert not any("optimizer" in line for line in lines)


def test_no_line_is_wider_than_the_screen(projection):
    assert max(map(len, render(projection_text(projection)).splitlines())) <= 100


def test_equal_stages_share_a_row():
    text = render(memory_table(memory(*[stage(index, 30.0, 1.0) for index in range(8)])))
    assert "0–7" in text
    assert sum(line.strip() != "" for line in text.splitlines()) == 4


def test_a_long_pipeline_shows_its_ends_and_its_peak():
    stages = [stage(index, 20.0 + index / 10, float(64 - index)) for index in range(64)]
    stages[30] = stage(30, 35.0, 1.0)
    text = render(memory_table(memory(*stages)))
    shown_stages = [line.split()[0] for line in text.splitlines() if line[:1].isdigit()]
    assert shown_stages == ["0", "1", "2", "3", "4–29", "30", "31–59", "60", "61", "62", "63"]


@pytest.mark.parametrize(
    ("verdict", "gib_each", "words"),
    [("fits", 30.0, "FITS"), ("borderline", 38.0, "BORDERLINE"), ("oom", 50.0, "22.0 GiB short")],
)
def test_the_verdict(verdict, gib_each, words):
    assert words in render(verdict_line(replace(memory(stage(0, gib_each, 1.0)), verdict=verdict)))


def test_memory_alone_names_the_largest_values(projection):
    text = render(memory_text(projection, {"micro_batch_size": 3, "sequence_length": None}))
    assert "largest micro batch size that fits: 3" in text
    assert "largest sequence length that fits: none fits" in text


def test_eight_assumptions_are_shown_and_the_rest_counted(job):
    origin = [Origin(f"plan.x{index}", 2, "neutral", "default") for index in range(20)]
    origin += [Origin("software.date", "2026-01", "neutral", "newest"), Origin("model.name", "m", "file", "given")]
    lines = render(*assumed_lines(replace(job, origin=tuple(origin)))).splitlines()
    assert lines[0] == "Assumed"
    assert "software.date" in lines[1]
    assert len(lines) == 1 + 8 + 1
    assert "and 13 more" in lines[-1]


def test_what_was_given_or_cannot_matter_is_no_assumption(job):
    origin = (Origin("model.name", "m", "file", "given"), Origin("plan.moe.routing", "balanced", "neutral", "default"))
    assert not job.model.is_moe
    assert assumed_lines(replace(job, origin=origin)) == []


def test_an_explanation(projection):
    knob = Knob(changes=(("plan.parallel.tp", 2),), step_time=1.6, peak_device=GIB)
    explanation = Explanation(binding=(Binding(stage=1, term="compute", share=0.6),), assumptions=(), knobs=(knob,))
    text = render(explanation_text(replace(projection, explanation=explanation)))
    assert "stage 1" in text
    assert "60.0 %" in text
    assert "parallel.tp 2" in text
    assert "+25.0 % tokens/s" in text


def test_nothing_helps(projection):
    empty = Explanation(binding=(), assumptions=(), knobs=())
    assert "no single change" in render(explanation_text(replace(projection, explanation=empty)))


def test_a_comparison_shows_what_differs_and_why(projection):
    faster = replace(projection, step_time=1.5, time=replace(projection.time, bubble=0.0))
    pair = [projection, faster]
    jobs = [{"plan": {"parallel": {"tp": tp, "pp": 2}}} for tp in (1, 2)]
    text = render(compare_text(["one", "two"], pair, compare(pair), jobs))
    assert "plan.parallel.tp" in text
    assert "plan.parallel.pp" not in text
    assert "+33.3 %" in text
    assert "one → two" in text
    assert "-500 ms" in text


def test_legality():
    document = {
        "legal": False,
        "grids": {"dense": {"tp": 3, "dp": 2}, "expert": {"ep": 1}},
        "violations": [
            {
                "rule": "heads",
                "message": "tp must divide the heads",
                "values": {"tp": 3},
                "repairs": [{"changes": {"plan.parallel.tp": 4}}],
            }
        ],
        "minimum_accelerators": 8,
        "origin": [{"path": "plan.x", "value": True, "level": "neutral", "why": "default"}],
        "warnings": ["careful"],
    }
    text = render(check_text(document))
    assert text.startswith("ILLEGAL")
    assert "tp 3 · dp 2" in text
    assert "repair: --set plan.parallel.tp=4" in text
    assert "warning: careful" in text
    assert "plan.x" in text


def test_a_schedule_is_drawn_one_row_a_rank():
    order = build_order("1f1b", 2, 2)
    timeline = execute(order, [ChunkDurations(1, 1, 1)] * 2)
    document = schedule_document(timeline, peak_in_flight(order), order.name)
    assert document["makespan"] == 9.0
    assert document["orders"] == [["F0.0", "F1.0", "BW0.0", "BW1.0"], ["F0.0", "BW0.0", "F1.0", "BW1.0"]]
    assert document["bubble_fraction"] == pytest.approx(1 / 3)
    rows = render(schedule_text(document, timeline, 100)).splitlines()
    assert rows[3].split() == ["0", "F0F1····B000··B111", "2"]
    assert rows[4].split() == ["1", "··F0B000F1B111····", "1"]


@pytest.mark.parametrize(("stages", "microbatches"), [(1, 1), (2, 64), (16, 128)])
def test_a_drawing_fits_the_screen(stages, microbatches):
    order = build_order("1f1b", stages, microbatches)
    timeline = execute(order, [ChunkDurations(1, 1, 1)] * stages)
    document = schedule_document(timeline, peak_in_flight(order), order.name)
    lines = render(schedule_text(document, timeline, 100)).splitlines()
    assert max(map(len, lines)) <= 100
    assert len(lines) == stages + 4


def test_a_schedule_that_takes_no_time_is_drawn():
    order = build_order("1f1b", 2, 2)
    timeline = execute(order, [ChunkDurations(0, 0, 0)] * 2)
    document = schedule_document(timeline, peak_in_flight(order), order.name)
    assert document["bubble_fraction"] == 0.0
    assert render(schedule_text(document, timeline, 100))


def test_elasticity():
    assert "cluster.hbm  -0.250" in render(elasticity_text((("cluster.hbm", -0.25),)))


def test_catalog_names_and_entries():
    assert render(names_text({"models": ("a", "b")})).split() == ["a", "b"]
    assert render(names_text({"models": ("a",), "schedules": ("s",)})).split() == ["models", "a", "schedules", "s"]
    entry = {"peaks": {"bf16": "1 PFLOP/s"}, "tiers": [1, 2], "fits": [{"op": "x"}], "measured": True, "power": None}
    text = render(entry_text("chip", entry))
    assert "peaks:\n    bf16: 1 PFLOP/s" in text
    assert "tiers: [1, 2]" in text
    assert "measured: true" in text
    assert "power: none" in text


ROW = {
    "id": "r1", "source": "f", "bar": "tight", "series": None, "quantity": "speed", "measured": 100.0,
    "projected": 110.0, "error": 0.1, "within_bar": False, "interval": None, "skipped": None, "stages": None,
    "groups": ("dense",),
}  # fmt: skip
GROUP = {"n": 1, "mape": 0.1, "median": 0.1, "p90": 0.1, "bias": 0.1, "within_bar": 0.0}
VALIDATION = {
    "rows": [ROW, ROW | {"id": "r2", "error": None, "within_bar": None, "skipped": "no such model"}],
    "groups": {"speed": {"all": GROUP}, "memory": {}},
    "series": {"ladder": {"n": 3, "decided": 2, "ordered": 1.0, "regret": None}},
    "fits": {"n": 2, "false_oom": 0, "borderline": 1, "missed_oom": 0},
}


def test_the_document_of_a_validation():
    document = validate_document(VALIDATION)
    assert set(document) == {"records", "groups", "series", "fits"}
    assert set(document["records"][0]) == {
        "id", "source", "bar", "series", "quantity", "measured", "projected", "error", "within_bar", "interval",
        "skipped",
    }  # fmt: skip


def test_stages_stand_in_the_rows_that_have_them():
    stages = [{"measured": 1.0, "projected": 1.0, "error": 0.0}]
    document = validate_document(VALIDATION | {"rows": [ROW | {"stages": stages}]})
    assert document["records"][0]["stages"] == stages


def test_a_validation():
    text = render(validate_text(validate_document(VALIDATION)))
    assert "+10.0 %" in text
    assert "ladder" in text
    assert "skipped r2: no such model" in text
    assert "fits: 2 records, 0 ran that should not fit, 1 borderline, 0 did not fit that should" in text


def test_regressions():
    assert "nothing is worse" in render(regressions_text([]))
    assert "groups.speed.all.mape" in render(regressions_text([("groups.speed.all.mape", 0.1, 0.2)]))


def test_figures():
    assert [number(26.25), number(33.0), percent(0.274)] == ["26.25", "33", "27.4 %"]
    assert [gib(0), gib(1.5 * GIB)] == ["·", "1.50"]
    assert [bar(0, 8), bar(0.5, 8), bar(1.5, 8), bar(1 / 64, 8)] == ["", "████", "████████", "▏"]
    assert [shown(None), shown(True), shown(frozenset("ba")), shown(range(9))] == [
        "none",
        "true",
        "[a, b]",
        "range(0, 9)",
    ]
    assert shown("x" * 60) == "x" * 39 + "…"
