"""``windtunnel tune`` at a terminal: its document, its exits, and what it does with bad words."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from windtunnel.cli.workers import processors

NARROW = ("--vary", "plan.parallel.tp=1,2,4", "--vary", "plan.parallel.pp=1,2")
KEYS = {
    "best", "baseline", "gain", "certificate", "top", "enumerated", "legal", "pruned", "evaluated", "exactly_timed",
    "seconds", "plans_per_second", "attribution", "pareto", "sensitivity", "minimum_accelerators", "infeasible",
    "interrupted", "objective", "study", "close_call", "basin", "buys",
}  # fmt: skip


def test_the_document_adds_up(cli: Any, job_file: str, tmp_path: Path) -> None:
    out = tmp_path / "best.yaml"
    done = cli("tune", job_file, *NARROW, "--top", "3", "--out", str(out), "--json")
    found = done.document
    assert done.code == 0
    assert found.keys() == KEYS
    assert found["certificate"] == "exhaustive"
    assert found["interrupted"] is False
    assert found["infeasible"] is None
    assert found["enumerated"] == found["pruned"] + found["evaluated"]
    assert found["gain"] == pytest.approx(found["baseline"]["step_time"] / found["best"]["step_time"] - 1)
    assert len(found["top"]) == 3
    times = [plan["step_time"] for plan in found["top"]]
    assert times == sorted(times)
    assert times[0] == pytest.approx(found["best"]["step_time"], rel=1e-9)
    gained = sum(step["delta"] for step in found["attribution"])
    assert gained == pytest.approx(found["best"]["step_time"] - found["baseline"]["step_time"])
    assert {plan["plan"]["plan.parallel.tp"] for plan in found["top"]} <= {1, 2, 4}
    assert cli("project", str(out), "--json").document["step_time"] == pytest.approx(times[0], rel=1e-9)


def test_the_screen_says_what_was_won_and_how_sure_it_is(cli: Any, job_file: str) -> None:
    done = cli("tune", job_file, *NARROW)
    assert done.code == 0
    for words in ("gain", "from baseline to best", "certified", "one step away"):
        assert words in done.out
    assert max(map(len, done.out.splitlines())) <= 100


def test_nothing_fits(cli: Any, job_file: str) -> None:
    """Eight billion parameters and their optimizer do not fit in 8 x 2 GiB, however they are cut."""
    job = ("tune", job_file, *NARROW, "--set", "cluster.hbm_capacity=2 GiB")
    done = cli(*job, "--json")
    assert done.code == 1
    assert done.document["best"] is None
    assert done.document["top"] == []
    assert done.document["infeasible"]["constraint"]
    assert "nothing fits" in cli(*job).out


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--budget", "soon"), "--budget"),
        (("--vary", "plan.parallel.tpp=1,2"), "plan.parallel.tpp"),
        (("--vary", "plan.parallel.tp"), "plan.parallel.tp"),
        (("--space", "missing.yaml"), "missing.yaml"),
        (("--vary", "cluster.accelerator=h100-sxm-80gb,h1000"), "h1000"),
        (("--vary", "plan.parallel.tp=1,two"), "two"),
    ],
)
def test_bad_words_are_named(cli: Any, job_file: str, words: tuple[str, ...], named: str) -> None:
    done = cli("tune", job_file, *words)
    assert done.code == 2
    assert named in done.err


def test_a_space_file_bounds_the_axes(cli: Any, job_file: str, tmp_path: Path) -> None:
    space = tmp_path / "space.yaml"
    space.write_text("plan.parallel.tp: {min: 2, max: 4}\nplan.parallel.pp: 1\nplan.parallel.cp: [1]\n")
    found = cli("tune", job_file, "--space", str(space), "--json").document
    assert {plan["plan"]["plan.parallel.tp"] for plan in found["top"]} <= {2, 4}
    assert {plan["plan"]["plan.parallel.pp"] for plan in found["top"]} == {1}


def test_an_unwritable_place_is_named_and_the_answer_is_not_lost(cli: Any, job_file: str, tmp_path: Path) -> None:
    done = cli("tune", job_file, *NARROW, "--out", str(tmp_path / "no" / "best.yaml"))
    assert done.code == 2
    assert "best.yaml" in done.err
    assert "gain" in done.out


def wait_for_workers(pid: int) -> None:
    """Until the search has started processes: it has taken over the signals by then."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    for _ in range(300):
        time.sleep(0.1)
        if children.exists() and children.read_text().strip():
            return


@pytest.mark.skipif(processors() == 1, reason="one processor starts no others")
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_search_keeps_the_best_so_far(job_file: str, stop: signal.Signals) -> None:
    long = ("--set", "model=llama3.1-70b", "--set", "cluster.num_accelerators=64", "--json")
    command = [str(Path(sys.executable).with_name("windtunnel")), "tune", job_file, *long]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_for_workers(process.pid)
        process.send_signal(stop)
        out, err = process.communicate(timeout=60)
    assert "Traceback" not in err
    assert process.returncode == 130, err
    assert '"interrupted": true' in out
    assert '"certificate": "none"' in out
