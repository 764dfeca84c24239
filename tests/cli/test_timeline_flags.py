"""``--schedule all``, ``--timeline`` and ``--trace``: a step compared, drawn and written."""

from __future__ import annotations

import json
import os
import stat

import pytest

from windtunnel.schedule.registry import schedule_names


def test_every_schedule_is_compared(cli, job_file):
    choices = cli("project", job_file, "--schedule", "all", "--json").document["schedules"]
    assert {choice["name"] for choice in choices} == set(schedule_names()) - {"custom"}
    applicable = [choice for choice in choices if choice["applicable"]]
    assert [choice["step_time"] for choice in applicable] == sorted(choice["step_time"] for choice in applicable)
    assert all(choice["why"] is None for choice in applicable)
    assert all(choice["why"] and choice["step_time"] is None for choice in choices if not choice["applicable"])


def test_a_compared_schedule_is_the_one_projected(cli, job_file):
    choices = cli("project", job_file, "--schedule", "all", "--json").document["schedules"]
    gpipe = next(choice for choice in choices if choice["name"] == "gpipe")
    alone = cli("project", job_file, "--schedule", "gpipe", "--json").document
    assert gpipe["step_time"] == alone["step_time"]
    assert gpipe["peak_device"] == alone["memory"]["peak_device"]


def test_the_comparison_is_a_table_with_the_jobs_own_schedule_as_zero(cli, job_file):
    done = cli("project", job_file, "--schedule", "all")
    own = cli("project", job_file, "--json").document["schedule"]["name"]
    rows = {line.split()[0]: line for line in done.out.splitlines() if line.strip()}
    assert done.code == 0
    assert "0.0 %" in rows[own].replace("0.0%", "0.0 %")
    assert max(map(len, done.out.splitlines())) <= 100


@pytest.mark.parametrize("option", [("--explain",), ("--timeline",), ("--elasticity",), ("--trace", "t.json")])
def test_options_of_one_projection_are_refused_beside_all(cli, job_file, option):
    done = cli("project", job_file, "--schedule", "all", *option)
    assert done.code == 2
    assert option[0] in done.err


def test_all_is_no_schedule_of_a_job(cli, job_file):
    assert cli("project", job_file, "--set", "plan.pipeline.schedule=all").code == 2
    assert cli("memory", job_file, "--schedule", "all").code == 2


def test_the_shape_of_a_step_is_drawn_below_the_projection(cli, job_file):
    out = cli("project", job_file, "--timeline").out
    assert "One step" in out
    assert "F forward" in out
    assert max(map(len, out.splitlines())) <= 100


def test_the_shape_of_a_step_as_json(cli, job_file):
    document = cli("project", job_file, "--timeline", "--json").document
    assert [stage["stage"] for stage in document["timeline"]] == [0, 1]
    end = max(span["end"] for stage in document["timeline"] for span in stage["spans"])
    assert end == pytest.approx(document["step_time"])


def test_memory_over_the_step(cli, job_file):
    out = cli("memory", job_file, "--timeline").out
    drawing = out[out.index("Allocated memory of stage") :]
    assert len(drawing.splitlines()) <= 20
    assert drawing.count("▲") == 2
    assert max(map(len, out.splitlines())) <= 100


def test_memory_over_the_step_as_json(cli, job_file):
    document = cli("memory", job_file, "--timeline", "--json").document
    for stage, line in zip(document["memory"]["stages"], document["timeline"], strict=True):
        assert max(size for _, size in line["points"]) == pytest.approx(stage["allocated"])


def test_tensors_at_the_peak(cli, job_file):
    out = cli("memory", job_file, "--tensors").out
    assert "attention out" in out[out.index("Alive on stage") :]
    assert max(map(len, out.splitlines())) <= 100
    document = cli("memory", job_file, "--tensors", "--json").document
    peak = max(document["memory"]["stages"], key=lambda stage: stage["device"])
    assert sum(kind["bytes"] for kind in document["tensors"]) == pytest.approx(peak["allocated"])


def test_a_trace_is_written_whole(cli, job_file, tmp_path):
    path = tmp_path / "step.json"
    path.write_text("an earlier file")
    done = cli("project", job_file, "--trace", str(path), "--json")
    trace = json.loads(path.read_text())
    assert done.code == 0
    assert str(path) in done.err
    assert trace["otherData"]["step_time"] == done.document["step_time"]
    assert sorted(os.listdir(tmp_path)) == ["job.yaml", "step.json"]


def test_a_trace_that_cannot_be_written_is_refused(cli, job_file, tmp_path):
    for path in (tmp_path, tmp_path / "missing" / "step.json", tmp_path / "step\0.json"):
        done = cli("project", job_file, "--trace", str(path))
        assert done.code == 2
        assert "; " in done.err
        assert "Traceback" not in done.err
    assert os.listdir(tmp_path) == ["job.yaml"]


def test_a_folder_that_may_not_be_written_to(cli, job_file, tmp_path):
    folder = tmp_path / "locked"
    folder.mkdir()
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    if os.access(folder, os.W_OK):
        pytest.skip("this user may write anywhere")
    assert cli("project", job_file, "--trace", str(folder / "step.json")).code == 2


def test_a_full_disk_leaves_nothing_behind(cli, job_file, tmp_path, monkeypatch):
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    done = cli("project", job_file, "--trace", str(tmp_path / "step.json"))
    assert done.code == 2
    assert "No space left on device" in done.err
    assert os.listdir(tmp_path) == ["job.yaml"]


def test_zero_bubble_weighs_the_seconds_it_is_given(cli):
    asked = ("schedule", "zb_heuristic", "--stages", "4", "--microbatches", "8", "--memory-cap", "4", "--json")
    even, short = cli(*asked).document, cli(*asked, "--backward-weight", "0.25", "--p2p", "0.5").document
    assert even["orders"] != short["orders"]
    assert max(short["peak_in_flight"]) <= 4


def test_kinds_are_told_apart_without_colour(cli):
    drawn = cli("schedule", "zbv", "--stages", "4", "--microbatches", "8", "--no-color").out
    assert "FFFFFFFfbwfbw" in drawn
    assert "lower case" in drawn


def test_a_balanced_job_is_projected_with_its_layers_cut_by_cost(cli):
    """A small model with a large vocabulary: its head weighs as much as several layers."""
    job = ("--model", "llama3.2-1b", "--accelerator", "h100-sxm-80gb", "--num-accelerators", "8", "--pp", "4")
    batch = ("--micro-batch-size", "1", "--global-batch-size", "32", "--sequence-length", "4096")
    asked = ("project", *job, *batch, "--json")
    plain, balanced = cli(*asked).document, cli(*asked, "--balance").document
    assert balanced["step_time"] < plain["step_time"]
    assert balanced["job"]["plan"]["pipeline"]["layout"] != plain["job"]["plan"]["pipeline"]["layout"]
    refused = cli(*asked, "--balance", "--schedule", "all")
    assert refused.code == 2
    assert refused.document["error"]["faults"][0]["path"] == "--balance"
