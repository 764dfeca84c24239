"""Plans tried through the queue; without Slurm, submitit starts them on this machine."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from test_real_runs import JOB, SPACE, alive, command


def test_the_queue_needs_a_run(cli: Any, job_file: str) -> None:
    done = cli("tune", job_file, "--slurm", "--proposer", "seed")
    assert (done.code, "--run" in done.err) == (2, True)


@pytest.fixture
def small(tmp_path: Path) -> str:
    path = tmp_path / "small.json"
    path.write_text(json.dumps(JOB))
    return str(path)


def test_without_submitit_the_remedy_is_named(cli: Any, small: str) -> None:
    try:
        import submitit  # noqa: F401
    except ModuleNotFoundError:
        done = cli("tune", small, "--slurm", "--run", "true {result}")
        assert done.code == 2
        assert "windtunnel[slurm]" in done.err
    else:
        pytest.skip("submitit is here")


def test_a_study_through_the_queue_survives_its_runs_and_resumes(cli: Any, small: str, tmp_path: Path) -> None:
    pytest.importorskip("submitit")
    study = ("--study", str(tmp_path / "s.db"), "--proposer", "seed,local", "--slurm", "--run", command("mixed"))
    limits = ("--workers", "2", "--calls", "8")
    done = cli("tune", small, *SPACE, *study, *limits, "--json")
    assert done.code == 0, done.out + done.err
    found = done.document["study"]
    assert found["calls"] == 8
    assert {"ok", "crashed", "oom"} <= found["statuses"].keys()
    assert found["oracle"] == "slurm"
    assert found["best"]["provenance"] == {"measured": 1.0}
    assert found["best"]["seconds"] > found["best"]["step_time"]
    again = cli("tune", small, *SPACE, *study, *limits, "--resume", "--json").document["study"]
    assert (again["reused"], again["best"]) == (8, found["best"])


@pytest.mark.parametrize(("way", "status"), [("hang", "timeout"), ("garbage", "invalid"), ("killed", "crashed")])
def test_bad_runs_in_the_queue_are_results(
    cli: Any, small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, status: str
) -> None:
    pytest.importorskip("submitit")
    monkeypatch.setenv("PIDS", str(tmp_path / "pid"))
    words = ("--study", str(tmp_path / "s.db"), "--proposer", "seed", "--slurm", "--calls", "1", "--timeout", "4 s")
    done = cli("tune", small, *words, "--run", command(way), "--json")
    assert done.code == 1, done.out + done.err
    assert done.document["study"]["statuses"] == {status: 1}
    if way == "hang":
        assert alive(int((tmp_path / "pid").read_text())) == []


def test_a_job_the_queue_loses_is_a_crash(cli: Any, small: str, tmp_path: Path) -> None:
    pytest.importorskip("submitit")
    lose = f"{sys.executable} -c 'import os, signal; os.kill(os.getppid(), signal.SIGKILL)' {{result}}"
    words = ("--study", str(tmp_path / "s.db"), "--proposer", "seed", "--slurm", "--calls", "1", "--run", lose)
    done = cli("tune", small, *words, "--json")
    assert done.document["study"]["statuses"] == {"crashed": 1}


def test_a_stopped_study_cancels_its_jobs(small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("submitit")
    monkeypatch.setenv("PIDS", str(tmp_path / "pid"))
    program = [sys.executable, "-c", "from windtunnel.cli import main; main()"]
    words = ["tune", small, *SPACE, "--proposer", "seed", "--slurm", "--run", command("hang"), "--json"]
    study = ["--study", str(tmp_path / "s.db")]
    with subprocess.Popen([*program, *words, *study], stdout=subprocess.PIPE) as process:
        while not (tmp_path / "pid").exists():
            time.sleep(0.1)
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 130
    group = int((tmp_path / "pid").read_text())
    end = time.monotonic() + 30
    while alive(group) and time.monotonic() < end:
        time.sleep(0.1)
    assert alive(group) == []
