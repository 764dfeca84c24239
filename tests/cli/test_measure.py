"""measure, profile and project --profile on the command line."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import pytest

from windtunnel.catalog.pilots import eager_software
from windtunnel.catalog.profiles import read_profile, write_profile
from windtunnel.cost.profile import Entry, Profile
from windtunnel.cost.profile_keys import LAYER_OVER_OPS, calibration_key
from windtunnel.measure.plan import tasks_of
from windtunnel.projection.pilots import pilot_key, pilots


@pytest.fixture
def profile_file(tmp_path, make_job):
    """The most valuable unit of the small job, measured on an H100 at a second each."""
    task = tasks_of(make_job())[0]
    entries = tuple(Entry(key=key, seconds=1.0, low=0.9, high=1.1, repeats=5) for key in task.keys)
    path = tmp_path / "profile.yaml"
    write_profile(path, Profile(device=(("name", "NVIDIA H100 80GB HBM3"),), software=(), method=(), entries=entries))
    return str(path)


JOB = (
    "--model", "llama3.1-8b", "--accelerator", "h100-sxm-80gb", "--num-accelerators", "8", "--framework",
    "megatron-core", "--date", "2025-06", "--micro-batch-size", "1", "--global-batch-size", "64", "--sequence-length",
    "4096", "--strategy", "zero1", "--tp", "1", "--pp", "1",
)  # fmt: skip


def test_a_dry_run_lists_what_and_why(cli):
    done = cli("measure", *JOB, "--dry-run", "--json")
    assert done.code == 0
    first = done.document[0]
    assert first["label"].startswith("whole layer")
    assert first["value"] == pytest.approx(first["share"] * first["uncertainty"])
    assert "value" in cli("measure", *JOB, "--dry-run").out


def test_a_projection_on_measured_seconds(cli, profile_file):
    done = cli("project", *JOB, "--profile", profile_file, "--json")
    assert done.code == 0
    assert done.document["provenance"]["measured"] > 0.5
    assert done.document["step_time"] > 100
    assert not any("measured on" in warning for warning in done.document["warnings"])


def test_both_op_by_op(cli, profile_file):
    document = cli("project", *JOB, "--profile", profile_file, "--mode", "both", "--json").document
    assert document["simulated"]["provenance"]["simulated"] == 1.0
    assert {"op", "phase", "simulated", "measured", "evidence"} <= document["ops"][0].keys()
    screen = cli("project", *JOB, "--profile", profile_file, "--mode", "both").out
    assert "Evidence" in screen
    assert "simulated alone" in screen


def test_simulated_ignores_the_profile(cli, profile_file):
    plain = cli("project", *JOB, "--json").document["step_time"]
    assert (
        cli("project", *JOB, "--profile", profile_file, "--mode", "simulated", "--json").document["step_time"] == plain
    )


def test_a_profile_of_another_device_is_flagged(cli, profile_file):
    other = [word.replace("h100-sxm-80gb", "mi300x") for word in JOB]
    document = cli("project", *other, "--profile", profile_file, "--json").document
    assert any("measured on NVIDIA H100" in warning for warning in document["warnings"])


def test_every_second_says_where_it_comes_from(cli, profile_file):
    document = cli("project", *JOB, "--profile", profile_file, "--json").document
    evidence = document["evidence"]
    assert sum(sum(kinds.values()) for kinds in evidence.values()) == pytest.approx(document["step_time"])
    assert evidence["compute"]["measured"] > 0.5 * document["time"]["compute"]
    assert sum(evidence["optimizer"].values()) == pytest.approx(evidence["optimizer"]["simulated"])
    low, high = document["uncertainty"]["step_time"]
    assert low < document["step_time"] < high
    assert high / document["step_time"] - 1 == pytest.approx(0.1, abs=0.03)  # the spread of what was measured


def test_explained_on_measured_seconds(cli, profile_file):
    document = cli("project", *JOB, "--profile", profile_file, "--explain", "--elasticity", "--json").document
    assert document["explain"]["binding"][0]["share"] > 0.5
    assert all(0 < knob["simulated"] <= 1 for knob in document["explain"]["knobs"])
    slopes = {entry["path"]: entry["value"] for entry in document["elasticity"]}
    alone = {e["path"]: e["value"] for e in cli("project", *JOB, "--elasticity", "--json").document["elasticity"]}
    assert abs(slopes["cluster.accelerator.peaks"]) < 0.01 < abs(alone["cluster.accelerator.peaks"])


def test_drawn_and_traced_on_measured_seconds(cli, profile_file, tmp_path):
    path = tmp_path / "trace.json"
    done = cli("project", *JOB, "--profile", profile_file, "--timeline", "--trace", str(path), "--json")
    spans = [span for stage in done.document["timeline"] for span in stage["spans"]]
    assert max(span["end"] for span in spans) == pytest.approx(done.document["step_time"])
    events = [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]
    assert all(event["args"]["evidence"] for event in events)
    forward = next(event for event in events if event["name"].startswith("forward"))
    assert "measured" in forward["args"]["evidence"]
    assert "One step" in cli("project", *JOB, "--profile", profile_file, "--timeline").out


def test_what_cannot_be_combined_is_refused(cli, profile_file):
    assert cli("project", *JOB, "--profile", profile_file, "--anchor", "own.yaml").code == 2
    assert cli("project", *JOB, "--mode", "both").code == 2
    assert cli("project", *JOB, "--profile", "nowhere.yaml").code == 2
    assert cli("measure", "--suite", "grand").code == 2
    assert cli("measure", *JOB, "--budget", "soon").code == 2


def test_profiles_compared_and_merged(cli, profile_file, tmp_path):
    out = str(tmp_path / "merged.yaml")
    assert cli("profile", "merge", profile_file, profile_file, "--out", out, "--json").document["entries"] > 1
    changes = cli("profile", "diff", profile_file, out, "--json").document
    assert all(change["ratio"] == 1.0 for change in changes)
    assert "entries in both" in cli("profile", "diff", profile_file, out).out


def test_a_profile_is_shown(cli, tmp_path, profile_file):
    known = read_profile(profile_file)
    ratio = Entry(key=calibration_key(LAYER_OVER_OPS[0]), seconds=1.07, low=1.05, high=1.1, repeats=3)
    path = tmp_path / "with ratio.yaml"
    write_profile(path, replace(known, entries=(*known.entries, ratio)))
    document = cli("profile", "show", str(path), "--json").document
    assert document["ratios"] == {"layer_over_ops/forward": {"value": 1.07, "spread": [1.05, 1.1]}}
    assert sum(op["entries"] for op in document["ops"]) == len(known.entries)
    screen = cli("profile", "show", str(path)).out
    assert "layer_over_ops/forward" in screen
    assert "NVIDIA H100" in screen
    assert cli("profile", "diff", str(path)).code == 2


def test_pilots_anchor_the_memory_and_check_the_sum(cli, make_job, tmp_path):
    job = make_job()
    few = pilots(job, eager_software())
    entries = [
        Entry(key=pilot_key(each, what), seconds=size, low=size, high=size, repeats=5)
        for each in few
        for what, size in (("bytes/allocated", 3e9), ("bytes/reserved", 4e9), ("pilot", 1.0))
    ]
    path = tmp_path / "pilots.yaml"
    device = (("name", "NVIDIA H100 80GB HBM3"),)
    write_profile(path, Profile(device=device, software=(), method=(), entries=tuple(entries)))
    document = cli("project", *JOB, "--profile", str(path), "--json").document
    assert document["memory"]["anchored"]["framework_overhead"] == 1e9
    assert [each["layers"] for each in document["pilots"]] == [2, 4]
    assert cli("memory", *JOB, "--profile", str(path), "--json").document["memory"]["anchored"]["pilots"]
    for verb in ("project", "memory"):
        assert "residuals of measured pilots" in cli(verb, *JOB, "--profile", str(path)).out
    assert "pilot of 4 layers" in cli("project", *JOB, "--profile", str(path)).out


def test_records_of_the_device_are_checked_on_its_seconds(cli, profile_file):
    records = (str(Path(__file__).parents[2] / "docs" / "records.yaml"),)
    plain = cli("validate", *records, "--json").document["records"]
    measured = cli("validate", *records, "--profile", profile_file, "--json").document["records"]
    assert {row["id"] for row in measured} == {row["id"] for row in plain}
    assert {row["skipped"] for row in measured if row["skipped"]} <= {"not measured on NVIDIA H100 80GB HBM3"} | {
        row["skipped"] for row in plain
    }
    assert cli("validate", *records, "--profile", "nowhere.yaml").code == 2


@pytest.mark.skipif(importlib.util.find_spec("torch.nn") is not None, reason="torch is here")
def test_measuring_without_torch_names_the_remedy(cli, tmp_path):
    done = cli("measure", "--suite", "smoke", "--out", str(tmp_path / "p.yaml"))
    assert done.code == 2
    assert "windtunnel[measure]" in done.err


@pytest.mark.skipif(importlib.util.find_spec("submitit") is not None, reason="submitit is here")
def test_slurm_without_submitit_names_the_remedy(cli, tmp_path):
    done = cli("measure", "--suite", "smoke", "--slurm", "--out", str(tmp_path / "p.yaml"))
    assert done.code == 2
    assert "windtunnel[slurm]" in done.err
