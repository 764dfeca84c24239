"""Plans tried by real processes: good ones are believed, bad ones are results."""

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

from windtunnel.catalog.jobs import load_job
from windtunnel.cli.command import Running, filled, words_of
from windtunnel.errors import FormatError, WindtunnelError
from windtunnel.search.screen import Candidate
from windtunnel.search.trial import Outcome

PRETEND = str(Path(__file__).with_name("pretend_run.py"))
JOB: dict[str, Any] = {
    "model": "llama3.2-1b",
    "cluster": {"accelerator": "h100-sxm-80gb", "num_accelerators": 8},
    "software": {"framework": "megatron-core", "date": "2025-02"},
    "plan": {"batch": {"micro_batch_size": 1, "global_batch_size": 8, "sequence_length": 256}},
}


def command(way: str) -> str:
    return f"{sys.executable} {PRETEND} {{job}} {{result}} '{way}'"


def outcome(way: str, timeout: float = 60.0) -> Outcome:
    job = load_job(JOB)
    running = Running(words_of(command(way), job), timeout=timeout)
    try:
        running.start(0, Candidate(written={}, job=job, peak_device=1.0))
        while (found := running.poll(0, wait=True)) is None:
            pass
        return found
    finally:
        running.close()


def alive(group: int) -> list[str]:
    """What runs in a process group, a moment after its end; the dead whom no one has buried do not count."""
    time.sleep(0.3)
    listed = subprocess.run(["ps", "-A", "-o", "pgid=,stat=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(maxsplit=2) for line in listed.splitlines()]
    return [" ".join(row) for row in rows if row[0] == str(group) and not row[1].startswith("Z")]


@pytest.mark.parametrize("way", ["well", "units", "noisy", "daemon"])
def test_a_good_run_is_believed(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windtunnel.cli.execution.GRACE", 1.0)
    found = outcome(way)
    assert found.status == "ok", found.why
    assert found.step_time is not None
    assert found.peak_device is not None
    assert found.provenance == {"measured": 1.0}
    assert found.step_time < found.seconds
    assert found.cost == pytest.approx(found.seconds * 8)


@pytest.mark.parametrize(
    ("way", "status", "why"),
    [
        ("oom", "oom", "CUDA out of memory"),
        ("says oom", "oom", "memory ran out"),
        ("crash", "crashed", "exit code 3: Traceback: NCCL is unhappy"),
        ("killed", "crashed", "signal 9"),
        ("silent", "invalid", "no result"),
        ("garbage", "invalid", "not JSON"),
        ("huge", "invalid", "65536 bytes"),
        ("nan", "invalid", "positive number"),
        ("negative", "invalid", "positive number"),
        ("true", "invalid", "positive number"),
        ("text", "invalid", "step_time"),
        ("list", "invalid", "no JSON object"),
        ("nothing", "invalid", "no step_time"),
        ("milliseconds", "invalid", "is in seconds"),
        ("hours", "invalid", "faster than peak FLOP/s allow"),
        ("gibibytes", "invalid", "it is in bytes"),
        ("bits", "invalid", "it is in bytes"),
        ("enormous", "invalid", "positive number"),
        ("countless", "invalid", "steps"),
        ("surrogate", "invalid", "step_time"),
        ("nested", "invalid", "not JSON"),
        ("vandal", "invalid", "no result"),
        ("folder", "invalid", "no result"),
        ("endless", "invalid", "no result"),
        ("terminal", "crashed", "exit code 1"),
    ],
)
def test_a_bad_run_is_a_result(way: str, status: str, why: str) -> None:
    found = outcome(way)
    assert found.status == status
    assert why in found.why
    assert found.why.isprintable()


def test_a_hanging_run_is_ended_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIDS", str(tmp_path / "pid"))
    start = time.perf_counter()
    found = outcome("hang", timeout=3.0)
    assert found.status == "timeout"
    assert time.perf_counter() - start < 30
    assert alive(int((tmp_path / "pid").read_text())) == []


def test_a_run_that_will_not_end_is_made_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windtunnel.cli.execution.GRACE", 1.0)
    found = outcome("stubborn", timeout=2.0)
    assert found.status == "timeout"
    assert found.seconds < 30


def test_a_machine_without_room_is_no_fault_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/no/such/folder")
    with pytest.raises(FormatError, match="--resume"):
        outcome("well")


def test_slots_never_split_or_reach_a_shell() -> None:
    job = load_job({**JOB, "model": {"base": "llama3.2-1b", "name": "a b; $(touch x) `y`"}})
    words = ["run", "--name={model.name}", "{plan.parallel.tp}", "{job}"]
    done = filled(words, job, job_file="/a b", result="")
    assert done == ["run", "--name=a b; $(touch x) `y`", "1", "/a b"]


@pytest.mark.parametrize(
    ("template", "named"),
    [
        ("", "result"),
        ("true", "result"),
        ("no-such-program-here {result}", "no such program"),
        ("true {result} {plan.parallel.zz}", "plan.parallel.zz"),
        ("true {result} 'open", "quotes"),
    ],
)
def test_a_bad_template_is_named(template: str, named: str) -> None:
    with pytest.raises(WindtunnelError, match=named):
        words_of(template, load_job(JOB))


@pytest.fixture
def small(tmp_path: Path) -> str:
    path = tmp_path / "small.json"
    path.write_text(json.dumps(JOB))
    return str(path)


SPACE = ("--vary", "plan.parallel.tp=1,2,4", "--vary", "plan.parallel.pp=1", "--vary", "plan.recompute={policy: none}")


def test_a_study_of_real_runs_survives_them_and_resumes(cli: Any, small: str, tmp_path: Path) -> None:
    study = ("--study", str(tmp_path / "s.db"), "--proposer", "seed,local", "--run", command("mixed"))
    limits = ("--workers", "2", "--calls", "12")
    done = cli("tune", small, *SPACE, *study, *limits, "--json", "--plot", str(tmp_path / "s.svg"))
    assert done.code == 0, done.out + done.err
    found = done.document["study"]
    assert found["calls"] == 12
    assert {"ok", "crashed", "oom"} <= found["statuses"].keys()
    assert found["margin"] > 1
    assert found["best"]["provenance"] == {"measured": 1.0}
    assert found["best"]["changes"]["plan.parallel.tp"] == 2
    assert (tmp_path / "s.svg").read_text().startswith("<svg")
    again = cli("tune", small, *SPACE, *study, *limits, "--resume", "--json").document
    assert again["study"]["reused"] == 12
    assert again["study"]["best"] == found["best"]
    lines = cli("study", "export", str(tmp_path / "s.db")).out.splitlines()
    called = [row for row in map(json.loads, lines) if row["status"] not in ("illegal", "infeasible")]
    assert len(called) == 12
    assert all(row["seconds"] > 0 for row in called)


def test_a_stopped_study_ends_its_runs(small: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PIDS": str(tmp_path / "pid")}
    program = [sys.executable, "-c", "from windtunnel.cli import main; main()"]
    words = ["tune", small, *SPACE, "--proposer", "seed", "--run", command("hang"), "--json"]
    with subprocess.Popen([*program, *words], stdout=subprocess.PIPE, env=environment) as process:
        while not (tmp_path / "pid").exists():
            time.sleep(0.1)
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 130
    assert alive(int((tmp_path / "pid").read_text())) == []


def test_a_killed_study_leaves_no_run_behind(small: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PIDS": str(tmp_path / "pid")}
    program = [sys.executable, "-c", "from windtunnel.cli import main; main()"]
    words = ["tune", small, *SPACE, "--proposer", "seed", "--run", command("hang"), "--json"]
    with subprocess.Popen([*program, *words], stdout=subprocess.PIPE, env=environment) as process:
        while not (tmp_path / "pid").exists():
            time.sleep(0.1)
        time.sleep(0.3)
        process.kill()
    group = int((tmp_path / "pid").read_text())
    end = time.monotonic() + 30
    while alive(group) and time.monotonic() < end:
        time.sleep(0.1)
    assert alive(group) == []
