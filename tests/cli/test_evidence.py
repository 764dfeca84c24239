"""Searches that believe a profile or own runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CORES = str(ROOT / "docs" / "two-cores.yaml")
PROFILE = ("--profile", str(ROOT / "src" / "windtunnel" / "data" / "profiles" / "two-cpu-cores.yaml"))
SEVENTY = str(ROOT / "examples" / "llama3.1-70b-64-h100.yaml")
ANCHOR = ("--anchor", str(ROOT / "docs" / "records.yaml"))
FEW = ("--vary", "plan.parallel.tp=4", "--vary", "plan.parallel.pp=4", "--vary", "plan.parallel.cp=1,2")


def test_a_profile_answers_every_trial(cli: Any, tmp_path: Path) -> None:
    study = ("--proposer", "seed", "--calls", "8", "--study", str(tmp_path / "s.db"))
    found = cli("tune", CORES, *PROFILE, *study, "--out", str(tmp_path / "best.yaml"), "--json").document
    assert found["study"]["oracle"].startswith("profile ")
    assert found["certificate"] == "none"
    assert found["baseline"]["provenance"]["measured"] > 0.8
    alone = cli("project", str(tmp_path / "best.yaml"), *PROFILE, "--json").document
    assert found["best"]["step_time"] == pytest.approx(alone["step_time"], rel=1e-9)
    assert found["best"]["step_time"] == found["study"]["best"]["step_time"]
    steps = sum(step["delta"] for step in found["attribution"])
    assert steps == pytest.approx(found["best"]["step_time"] - found["baseline"]["step_time"])
    rows = [json.loads(line) for line in cli("study", "export", str(tmp_path / "s.db")).out.splitlines()]
    tried = [row for row in rows if row["status"] == "ok"]
    assert tried
    assert all(sum(row["provenance"].values()) == pytest.approx(1) for row in tried)
    assert {"measured", "simulated"} <= {name for row in tried for name in row["provenance"]}


def test_without_proposers_a_profile_is_asked_about_what_the_model_ranks_first(cli: Any) -> None:
    done = cli("tune", CORES, *PROFILE, "--vary", "plan.batch.micro_batch_size=1,2", "--top", "3")
    assert "exhaustive; 3 calls of profile" in " ".join(done.out.split())
    assert "not certified" in done.out


def test_what_stands_on_less_evidence_than_the_baseline_is_said(cli: Any) -> None:
    words = ("--proposer", "seed,local", "--calls", "20")
    done = cli("tune", CORES, *PROFILE, *words)
    assert "windtunnel measure" in done.err


@pytest.mark.parametrize("proposer", [(), ("--proposer", "seed", "--calls", "10")])
def test_an_anchored_search_is_the_anchored_projection(cli: Any, tmp_path: Path, proposer: tuple[str, ...]) -> None:
    out = str(tmp_path / "best.yaml")
    found = cli("tune", SEVENTY, *ANCHOR, *FEW, *proposer, "--top", "3", "--out", out, "--json").document
    assert found["certificate"] == ("none" if proposer else "exhaustive")
    assert found["study"]["oracle"].startswith("anchored ")
    assert found["study"]["best"]["provenance"] == {"anchored": 1.0}
    for name, file in (("baseline", SEVENTY), ("best", out)):
        alone = cli("project", file, *ANCHOR, "--json").document
        assert found[name]["step_time"] == pytest.approx(alone["step_time"], rel=1e-9)
    steps = sum(step["delta"] for step in found["attribution"])
    assert steps == pytest.approx(found["best"]["step_time"] - found["baseline"]["step_time"])


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ((*PROFILE, *ANCHOR), "one oracle"),
        ((*PROFILE, "--run", "true {result}"), "one oracle"),
        (ANCHOR, "torchtitan on cpu-core"),
        ((*PROFILE, "--vary", "cluster.accelerator=h100-sxm-80gb"), "cluster.accelerator"),
        (("--profile", "no.yaml"), "no.yaml"),
    ],
)
def test_evidence_that_cannot_serve_is_refused(cli: Any, words: tuple[str, ...], named: str) -> None:
    done = cli("tune", CORES, *words)
    assert done.code == 2
    assert named in done.err


def test_a_profile_and_an_anchor_beside_each_other_are_refused(cli: Any) -> None:
    done = cli("project", CORES, *PROFILE, *ANCHOR)
    assert (done.code, "--anchor" in done.err) == (2, True)


def test_answers_of_one_oracle_are_not_taken_for_those_of_another(cli: Any, tmp_path: Path) -> None:
    study = ("--proposer", "random", "--calls", "3", "--study", str(tmp_path / "s.db"), "--resume", "--json")
    cli("tune", CORES, *study)
    measured = cli("tune", CORES, *study, *PROFILE).document["study"]
    assert (measured["reused"], measured["calls"]) == (0, 3)
    assert cli("tune", CORES, *study, *PROFILE).document["study"]["reused"] == 3


def test_the_exhaustive_proposer_ranks_by_the_objective(cli: Any, job_file: str, tmp_path: Path) -> None:
    narrow = ("--vary", "plan.parallel.tp=1,2", "--vary", "plan.parallel.pp=1", "--objective", "accelerators")
    alone = cli("tune", job_file, *narrow, "--json").document
    kept = cli("tune", job_file, *narrow, "--study", str(tmp_path / "s.db"), "--json").document
    assert kept["certificate"] == alone["certificate"] == "exhaustive"
    assert kept["objective"]["best"] == alone["objective"]["best"]
    assert kept["top"][0]["plan"] == alone["top"][0]["plan"]
    refused = cli("tune", job_file, *narrow[:4], "--objective", "memory", "--proposer", "seed,exhaustive")
    assert (refused.code, "memory" in refused.err) == (2, True)
