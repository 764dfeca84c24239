"""Studies at a terminal: proposers, objectives, files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

NARROW = (
    "--vary",
    "plan.parallel.tp=1,2,4",
    "--vary",
    "plan.parallel.pp=1,2",
    "--vary",
    "plan.batch.micro_batch_size=1",
)
RUN = (
    "--set", "run.tokens=1e9", "--set", "cluster.price=2.5", "--set", "run.mtbf_per_accelerator=20000 h",
    "--set", "run.restart_time=10 min",
)  # fmt: skip


@pytest.mark.parametrize("proposer", ["seed", "seed,local", "random", "seed,exhaustive"])
def test_a_study_answers_as_a_search_does(cli: Any, job_file: str, tmp_path: Path, proposer: str) -> None:
    out = tmp_path / "best.yaml"
    done = cli("tune", job_file, *NARROW, "--proposer", proposer, "--calls", "70", "--out", str(out), "--json")
    found = done.document
    assert done.code == 0
    assert found["study"]["proposers"] == proposer.split(",")
    assert found["certificate"] == ("exhaustive" if proposer.endswith("exhaustive") else "none")
    assert found["enumerated"] == found["pruned"] + found["evaluated"]
    assert sum(found["study"]["statuses"].values()) == found["study"]["trials"]
    again = cli("project", str(out), "--json").document
    assert again["step_time"] == pytest.approx(found["best"]["step_time"], rel=1e-9)
    assert "found by" in cli("tune", job_file, *NARROW, "--proposer", proposer, "--calls", "70").out


def test_the_same_study_twice_is_the_same_answer(cli: Any, job_file: str, tmp_path: Path) -> None:
    study = ("tune", job_file, *NARROW, "--proposer", "random", "--seed", "5", "--calls", "12", "--json", "--study")
    one = cli(*study, str(tmp_path / "one.db")).document
    two = cli(*study, str(tmp_path / "two.db")).document
    resumed = cli(*study, str(tmp_path / "one.db"), "--resume").document
    assert one["study"] == two["study"]
    assert resumed["study"] == one["study"] | {"reused": 12}
    assert one["top"] == two["top"] == resumed["top"]
    exported = [json.loads(line) for line in cli("study", "export", str(tmp_path / "one.db")).out.splitlines()]
    assert sum(row["status"] == "ok" for row in exported) == 12
    top = cli("study", "top", str(tmp_path / "one.db"), "--top", "3", "--json").document["trials"]
    assert [row["step_time"] for row in top] == sorted(row["step_time"] for row in top)
    assert "trials" in cli("study", "show", str(tmp_path / "one.db")).out


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--proposer", "llama"), "--proposer"),
        (("--resume",), "--study"),
        (("--objective", "cost"), "cluster.price"),
        (("--objective", "time_to_train"), "run.tokens"),
        (("--objective", "beauty"), "--objective"),
        (("--objective", "memory"), "memory"),
        (("--plot", "x.gif", "--proposer", "seed"), ".svg"),
        (("--plot", "x.svg"), "--proposer"),
        (("--run", "true"), "{result}"),
        (("--run", "true {result}", "--workers", "0"), "--workers"),
        (("--target", "soon"), "--target"),
        (("--study", "/no/such/folder/s.db"), "folder"),
    ],
)
def test_bad_words_are_named(cli: Any, job_file: str, words: tuple[str, ...], named: str) -> None:
    done = cli("tune", job_file, *NARROW, *words)
    assert done.code == 2
    assert named in done.err


def test_a_study_is_not_overwritten_nor_mixed_up(cli: Any, job_file: str, tmp_path: Path) -> None:
    study = ("--proposer", "random", "--calls", "3", "--study", str(tmp_path / "s.db"))
    assert cli("tune", job_file, *NARROW, *study).code == 0
    again = cli("tune", job_file, *NARROW, *study)
    assert (again.code, "--resume" in again.err) == (2, True)
    other = cli("tune", job_file, *NARROW, *study, "--resume", "--set", "plan.batch.global_batch_size=64")
    assert (other.code, "another job" in other.err) == (2, True)
    assert cli("study", "show", str(tmp_path / "none.db")).code == 2
    (tmp_path / "bad.db").write_text("not a database at all" * 100)
    assert "not a study" in cli("study", "show", str(tmp_path / "bad.db")).err


@pytest.mark.parametrize("objective", ["cost", "time_to_train"])
def test_on_one_cluster_the_fastest_plan_is_the_best_by_cost_and_time(cli: Any, job_file: str, objective: str) -> None:
    fastest = cli("tune", job_file, *NARROW, *RUN, "--json").document
    found = cli("tune", job_file, *NARROW, *RUN, "--objective", objective, "--json").document
    assert found["certificate"] == "exhaustive"
    assert found["top"][0]["plan"] == fastest["top"][0]["plan"]
    seconds, objectives = found["best"]["step_time"], found["objective"]
    tokens = 32 * 4096
    between = 20000 * 3600 / 8
    interval = (2 * between * 600) ** 0.5
    goodput = between / (between + 600 + interval / 2)
    assert objectives["checkpoint_interval"] == pytest.approx(interval)
    assert objectives["goodput"] == pytest.approx(goodput)
    days = 1e9 / tokens * seconds / goodput / 86400
    price = seconds / tokens * 1e6 / goodput * 8 / 3600 * 2.5
    assert objectives["best"] == [pytest.approx(days if objective == "time_to_train" else price)]
    assert "checkpoint every" in cli("tune", job_file, *NARROW, *RUN, "--objective", objective).out


def test_the_fewest_accelerators_that_meet_a_target(cli: Any, job_file: str) -> None:
    def searched(*target: str) -> Any:
        return cli("tune", job_file, *NARROW, "--objective", "accelerators", *target, "--json").document

    free = searched()
    tight = searched("--target", f"{free['best']['step_time'] * 0.6} s")
    assert free["objective"]["best"][0] < tight["objective"]["best"][0] <= 8
    assert tight["best"]["step_time"] <= free["best"]["step_time"] * 0.6
    assert searched("--target", "1 ms")["best"] is None


def test_a_front_trades_cost_against_time(cli: Any, job_file: str) -> None:
    worlds = ("--vary", "cluster.num_accelerators=4,8,16", "--objective", "time_to_train,cost,accelerators")
    found = cli("tune", job_file, *NARROW, *RUN, *worlds, "--top", "30", "--json").document
    values = [item["values"] for item in found["objective"]["front"]]
    assert len(values) >= 2
    for one in values:
        assert not any(other != one and all(a <= b for a, b in zip(other, one, strict=True)) for other in values)
    lean = cli("tune", job_file, *NARROW, "--objective", "throughput,memory", "--json").document["objective"]["front"]
    assert len(lean) >= 3
    assert [item["values"][1] for item in lean] == sorted((item["values"][1] for item in lean), reverse=True)
    studied = cli("tune", job_file, *NARROW, *RUN, *worlds, "--proposer", "seed", "--json").document
    assert studied["objective"]["names"] == ["time_to_train", "cost", "accelerators"]


def test_every_search_trades_time_memory_and_accelerators(cli: Any, job_file: str) -> None:
    found = cli("tune", job_file, *NARROW, "--vary", "cluster.num_accelerators=4,8", "--json").document["pareto"]
    points = [(item["step_time"], item["peak_device"], item["accelerators"]) for item in found]
    assert {point[2] for point in points} == {4, 8}
    assert points == sorted(points)
    for one in points:
        assert not any(other != one and all(a <= b for a, b in zip(other, one, strict=True)) for other in points)
    fewer = cli("tune", job_file, *NARROW, "--objective", "throughput,accelerators", "--json").document["objective"]
    assert len({values["values"][1] for values in fewer["front"]}) >= 2


def test_more_memory_never_costs_throughput(cli: Any, job_file: str) -> None:
    done = cli("tune", job_file, *NARROW, "--what-if", "--json")
    more_memory, more_accelerators = done.document["buys"]
    assert more_memory["cluster"].keys() == {"cluster.hbm_capacity"}
    assert more_memory["gain"] > -0.01
    assert more_accelerators["cluster"] == {"cluster.num_accelerators": 16}
    assert more_accelerators["step_time"] < done.document["best"]["step_time"]
    assert "at least" in cli("tune", job_file, *NARROW, "--what-if").out
