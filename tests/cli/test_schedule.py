"""``windtunnel schedule``: what it refuses, and the gap to the optimum."""

from __future__ import annotations

import importlib.util
import json
import sys

import pytest

SMALL = ("--stages", "2", "--microbatches", "4")
needs_ortools = pytest.mark.skipif(importlib.util.find_spec("ortools") is None, reason="the extra ilp")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (("1f1b", *SMALL, "--memory-cap", "3"), "--memory-cap = 3: 1f1b has no use for it"),
        (("zbv", *SMALL, "--memory-cap", "3"), "choose zb_heuristic"),
        (("gpipe", *SMALL, "--microbatch-group-size", "2"), "choose interleaved_1f1b, 1f1b_ep_overlap, interleaved_zb"),
        (("1f1b_ep_overlap", *SMALL, "--microbatch-group-size", "2"), "one chunk per stage"),
        (("1f1b", *SMALL, "--orders", "rows.json"), "choose custom"),
        (("1f1b", *SMALL, "--virtual-stages", "2"), "1 virtual stage per stage, not 2"),
        (("zbv", *SMALL, "--virtual-stages", "1"), "zbv runs with 2 chunks per stage"),
        (("interleaved_1f1b", *SMALL, "--virtual-stages", "1"), "2 chunks per stage or more"),
        (("zbv", *SMALL, "--time-limit", "-1"), "--time-limit"),
        (("custom", *SMALL), "needs orders"),
    ],
)
def test_an_option_that_would_change_nothing_is_refused(cli, asked, words):
    done = cli("schedule", *asked)
    assert done.code == 2
    assert words in done.err
    assert "Traceback" not in done.err


def test_all_unused_options_come_at_once(cli):
    done = cli("schedule", "zb_h1", *SMALL, "--memory-cap", "2", "--microbatch-group-size", "2", "--json")
    assert [fault["path"] for fault in done.document["error"]["faults"]] == ["--memory-cap", "--microbatch-group-size"]


def test_a_schedule_takes_as_few_chunks_as_it_runs_with(cli):
    for name, chunks in (("1f1b", 1), ("interleaved_1f1b", 2), ("zbv", 2), ("1f1b_ep_overlap", 1)):
        assert cli("schedule", name, *SMALL, "--json").document["virtual_stages"] == chunks


def test_without_the_solver_the_gap_names_the_extra(cli, monkeypatch):
    for module in [name for name in sys.modules if name.split(".")[0] == "ortools"] or ["ortools"]:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, "ortools", None)
    done = cli("schedule", "zbv", *SMALL, "--gap")
    assert done.code == 2
    assert "pip install windtunnel[ilp]" in done.err
    assert cli("schedule", "zbv", *SMALL).code == 0


@needs_ortools
def test_the_gap_is_stated_and_the_optimum_can_be_run(cli, tmp_path):
    document = cli("schedule", "dualpipe_v", *SMALL, "--gap", "--json").document
    best = document["optimum"]
    assert (document["makespan"], best["makespan"], best["bound"], best["proven"]) == (13.0, 12.5, 12.5, True)
    assert best["gap"] == best["gap_at_most"] == pytest.approx(0.04)
    assert best["memory_cap"] == max(document["peak_in_flight"]) == 2.5
    rows = tmp_path / "best.json"
    rows.write_text(json.dumps(best["orders"]))
    again = cli("schedule", "custom", *SMALL, "--virtual-stages", "2", "--orders", str(rows), "--json").document
    assert again["makespan"] == 12.5


@needs_ortools
@pytest.mark.parametrize(("name", "words"), [("zbv", "and so does this one"), ("dualpipe_v", "this one 4.0 % more")])
def test_the_gap_in_words(cli, name, words):
    assert words in " ".join(cli("schedule", name, *SMALL, "--gap").out.split())


@needs_ortools
def test_a_cap_that_is_asked_for_is_the_cap_of_the_optimum(cli):
    asked = ("schedule", "zb_heuristic", "--stages", "3", "--microbatches", "5", "--memory-cap", "2")
    best = cli(*asked, "--gap", "--json").document["optimum"]
    assert best["memory_cap"] == 2
    assert best["proven"]
