"""Studies at a terminal that are killed, share one file, or run out of disk. STUDY_KILLS: moments, 8 if not set."""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from windtunnel.errors import WindtunnelError
from windtunnel.store.study_file import StudyFile

KILLS = int(os.environ.get("STUDY_KILLS", "8"))
CALLS = 8 * KILLS
JOB: dict[str, Any] = {
    "model": "llama3.2-1b",
    "cluster": {"accelerator": "h100-sxm-80gb", "num_accelerators": 8},
    "software": {"framework": "megatron-core", "date": "2025-02"},
    "plan": {"batch": {"micro_batch_size": 1, "global_batch_size": 64, "sequence_length": 256}},
}
RUN = """
echo "$(cksum < "$1")" >> "$3"
sleep 0.05
printf '{"step_time": 0.02%s}' "$4" > "$2"
"""
"""A run that counts itself; its plan decides its step time."""
PROGRAM = [sys.executable, "-c", "from windtunnel.cli import main; main()"]


@pytest.fixture
def job(tmp_path: Path) -> str:
    (tmp_path / "job.json").write_text(json.dumps(JOB))
    (tmp_path / "run.sh").write_text(RUN)
    return str(tmp_path / "job.json")


def words(job: str, study: Path, *further: str) -> list[str]:
    return ["tune", job, "--proposer", "random", "--study", str(study), "--resume", "--quiet", "--json", *further]


def counting(folder: Path, ledger: str) -> list[str]:
    digits = "{plan.parallel.tp}{plan.parallel.pp}{plan.batch.micro_batch_size}"
    return ["--run", f"sh {folder}/run.sh {{job}} {{result}} {folder}/{ledger} {digits}"]


def rows(study: Path) -> dict[str, tuple[Any, ...]]:
    """What the file holds of every plan that was run, by its changes."""
    if not study.exists() or not study.stat().st_size:
        return {}
    try:
        opened = StudyFile.open(str(study))
    except WindtunnelError:
        return {}  # killed before its tables were there
    try:
        found = [row for row in opened.rows() if row.trial.outcome.status not in ("illegal", "infeasible")]
    finally:
        opened.close()
    named = {json.dumps(row.plan, sort_keys=True): (row.trial.outcome, row.trial.values, row.at) for row in found}
    assert len(named) == len(found), "a plan is there once"
    return named


def test_killed_at_random_moments_nothing_is_lost_or_run_twice(cli: Any, job: str, tmp_path: Path) -> None:
    study, generator, reported = tmp_path / "s.db", random.Random(3), dict[str, tuple[Any, ...]]()
    limits = ("--calls", str(CALLS), "--workers", "2")
    command = words(job, study, *limits, *counting(tmp_path, "ledger"))
    for moment in range(KILLS):
        with subprocess.Popen([*PROGRAM, *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
            if moment % 4:  # most are killed at work, the others while they begin
                _wait_for_more(tmp_path / "ledger", process)
            time.sleep(generator.uniform(0.0, 0.4))
            reported |= rows(study)
            process.kill()
        now = rows(study)
        assert {plan: now[plan] for plan in reported} == reported
    resumed = cli(*command)
    assert resumed.code == 0, resumed.err
    found = resumed.document["study"]
    kept = rows(study)
    assert found["calls"] == len(kept) == CALLS
    assert {plan: kept[plan] for plan in reported} == reported
    runs = Counter((tmp_path / "ledger").read_text().splitlines())
    assert len(runs) == CALLS
    assert sum(runs.values()) <= CALLS + 2 * KILLS, "only what was under way at a kill runs again"
    whole = cli(*words(job, tmp_path / "whole.db", *limits, *counting(tmp_path, "other"))).document["study"]
    same = ("calls", "trials", "statuses", "ending")
    assert {name: found[name] for name in same} == {name: whole[name] for name in same}
    assert found["best"]["changes"] == whole["best"]["changes"]


def _wait_for_more(ledger: Path, process: subprocess.Popen[bytes]) -> None:
    """Wait for the process to start a run, or to end."""
    before = ledger.stat().st_size if ledger.exists() else 0
    while process.poll() is None and (not ledger.exists() or ledger.stat().st_size == before):
        time.sleep(0.01)


def test_four_processes_fill_one_study(job: str, tmp_path: Path) -> None:
    study = tmp_path / "s.db"
    seeds = [("--seed", str(seed), "--calls", "10") for seed in range(4)]
    processes = [
        subprocess.Popen([*PROGRAM, *words(job, study, *seed)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for seed in seeds
    ]
    ends = [(process.communicate(timeout=120), process.returncode) for process in processes]
    assert [(code, err) for (_, err), code in ends] == [(0, b"")] * 4
    kept = rows(study)
    documents = [json.loads(out)["study"] for (out, _), _ in ends]
    assert all(document["calls"] == 10 for document in documents)
    asked = sum(document["calls"] - document["reused"] for document in documents)
    assert len(kept) <= asked <= 40
    best = min(values for _, values, _ in kept.values())
    assert best[0] == min(document["best"]["values"][0] for document in documents)


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))


def test_a_study_without_room_says_so_and_goes_on_with_room(cli: Any, job: str, tmp_path: Path) -> None:
    study = tmp_path / "s.db"
    command = words(job, study, "--calls", "80")
    done = subprocess.run([*PROGRAM, *command], capture_output=True, text=True, preexec_fn=limited, check=False)
    assert done.returncode == 2
    fault = json.loads(done.stdout)["error"]["faults"][0]
    assert "the study cannot be written" in fault["rule"]
    assert "--resume" in fault["remedy"]
    before = rows(study)
    assert before
    resumed = cli(*command)
    assert resumed.document["study"]["calls"] == 80
    assert resumed.document["study"]["reused"] == len(before)
    after = rows(study)
    assert len(after) == 80
    assert {plan: after[plan] for plan in before} == before
