"""Many jobs in many places: one table, and rows that fail."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from windtunnel.cli.spread import Lost, on_cores

NARROW = ("--vary", "plan.parallel.tp=1,2", "--vary", "plan.parallel.pp=1,2")


def plain(document: Any) -> list[dict[str, Any]]:
    """Rows without what differs from run to run."""
    return [{name: value for name, value in row.items() if name != "seconds"} for row in document["rows"]]


def test_rows_are_the_answers_of_single_studies(cli: Any, job_file: str) -> None:
    places = (
        "--across",
        "cluster.accelerator=h100-sxm-80gb,a100-sxm-80gb",
        "--across",
        "cluster.num_accelerators=8,16",
    )
    words = ("--proposer", "seed", "--calls", "4", *NARROW)
    found = cli("portfolio", job_file, *places, *words, "--local", "--workers", "2", "--json").document
    assert [row["status"] for row in found["rows"]] == ["ok"] * 4
    for row in found["rows"]:
        pairs = [word for path, value in row["across"].items() for word in ("--set", f"{path}={value}")]
        alone = cli("tune", job_file, *pairs, *words, "--json").document
        assert row["best"]["step_time"] == alone["best"]["step_time"]
        assert row["gain"] == alone["gain"]
        assert row["plan"] == alone["top"][0]["plan"]
        assert row["study"]["calls"] == alone["study"]["calls"]
    one = cli("portfolio", job_file, *places, *words, "--local", "--workers", "1", "--json").document
    assert plain(one) == plain(found)
    text = cli("portfolio", job_file, *places, *words, "--local").out
    assert "16 a100-sxm-80gb" in text
    assert "4 of 4 rows" in text


def test_a_job_that_fails_is_a_row(cli: Any, job_file: str, tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text(Path(job_file).read_text().replace("tp: 2", "tp: 3"))
    (tmp_path / "misspelt.yaml").write_text(Path(job_file).read_text().replace("h100-sxm-80gb", "h999"))
    (tmp_path / "large.yaml").write_text(Path(job_file).read_text().replace("llama3.1-8b", "llama3.1-405b"))
    files = [str(tmp_path / f"{name}.yaml") for name in ("broken", "misspelt", "large")]
    done = cli("portfolio", *files, job_file, *NARROW, "--calls", "3", "--local", "--json")
    assert done.code == 0
    broken, misspelt, large, fine = done.document["rows"]
    assert (broken["status"], broken["error"]["kind"]) == ("refused", "legality")
    assert (misspelt["status"], misspelt["error"]["kind"]) == ("refused", "missing")
    assert (large["status"], large["best"]) == ("nothing fits", None)
    assert fine["status"] == "ok"
    assert {frozenset(row) for row in done.document["rows"]} == {frozenset(fine)}
    nothing = cli("portfolio", *files, *NARROW, "--calls", "3", "--local")
    assert nothing.code == 1
    assert "0 of 3 rows" in nothing.out


def test_studies_of_rows_are_kept_and_resumed(cli: Any, job_file: str, tmp_path: Path) -> None:
    places = ("--across", "cluster.num_accelerators=4,8")
    words = (*places, *NARROW, "--proposer", "random", "--calls", "4", "--local", "--studies", str(tmp_path), "--json")
    first = cli("portfolio", job_file, *words).document
    assert sorted(file.name for file in tmp_path.glob("*.db")) == [
        f"job_num_accelerators={count}.db" for count in (4, 8)
    ]
    again = cli("portfolio", job_file, *words, "--resume").document
    for before, after in zip(plain(first), plain(again), strict=True):
        assert after.pop("study")["reused"] == before.pop("study")["calls"] > 0
        assert after == before
    refused = cli("portfolio", job_file, *words).document["rows"]
    assert all("--resume" in row["error"]["faults"][0]["remedy"] for row in refused)


def test_the_objective_is_a_column(cli: Any, job_file: str) -> None:
    words = (*NARROW, "--set", "cluster.price=2.5", "--objective", "cost", "--proposer", "exhaustive", "--local")
    done = cli("portfolio", job_file, *words)
    assert "per million tokens" in done.out
    assert "all" in done.out.split()
    row = cli("portfolio", job_file, *words, "--json").document["rows"][0]
    assert row["certificate"] == "exhaustive"
    assert row["objective"]["best"][0] <= row["objective"]["baseline"][0]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ((), "job files"),
        (("JOB", "--proposer", "llama"), "--proposer"),
        (("JOB", "--workers", "0"), "--workers"),
        (("JOB", "--across", "plan.parallel.tp"), "--across"),
        (("JOB", "--across", "plan.paralel.tp=1,2"), "paralel"),
        (("JOB", "--studies", "/no/such/folder"), "--studies"),
        (("JOB", "JOB", "--studies", "."), "different names"),
        (("JOB", "--budget", "soon"), "--budget"),
        (("no.yaml",), "no.yaml"),
    ],
)
def test_bad_words_are_named(cli: Any, job_file: str, words: tuple[str, ...], named: str) -> None:
    done = cli("portfolio", *(job_file if word == "JOB" else word for word in words), "--local")
    assert done.code == 2
    assert named in done.err


def test_without_ray_the_remedy_is_named(cli: Any, job_file: str) -> None:
    try:
        import ray  # noqa: F401
    except ModuleNotFoundError:
        done = cli("portfolio", job_file)
        assert done.code == 2
        assert "windtunnel[ray]" in done.err
    else:
        pytest.skip("ray is here")


def deadly(number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


def test_a_process_that_dies_costs_its_item() -> None:
    found = dict(on_cores(deadly, range(8), 2, lambda: False))
    assert isinstance(found.pop(3), Lost)
    assert found == {number: number * number for number in range(8) if number != 3}


def test_an_interrupted_portfolio_tells_what_it_has(job_file: str) -> None:
    program = [sys.executable, "-c", "from windtunnel.cli import main; main()"]
    words = ["portfolio", job_file, "--across", "cluster.num_accelerators=4,8,16", "--proposer", "seed,local",
             "--calls", "100000", "--local", "--workers", "1", "--json"]  # fmt: skip
    with subprocess.Popen([*program, *words], stdout=subprocess.PIPE, text=True) as process:
        time.sleep(3)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    document = json.loads(out)
    assert document["interrupted"]
    assert len(document["rows"]) == 3
