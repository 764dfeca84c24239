"""Jobs of searches that were stopped or killed: cancelled, or taken over by the search that goes on."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from test_real_runs import JOB, PRETEND, SPACE, alive, command

from windtunnel.catalog.jobs import load_job
from windtunnel.cli.command import words_of
from windtunnel.cli.queue import Queued
from windtunnel.search.screen import Candidate

pytest.importorskip("submitit")

PROGRAM = [sys.executable, "-c", "from windtunnel.cli import main; main()"]
GATED = """
echo "begin $$" >> "$2/ledger"
sleep 0.1
while [ ! -e "$2/gate" ]; do sleep 0.05; done
echo "end $$" >> "$2/ledger"
printf '{"step_time": 0.02}' > "$1"
"""
"""A run that waits for a file, and tells its beginning and its end with its process group."""


@pytest.fixture
def small(tmp_path: Path) -> str:
    (tmp_path / "run.sh").write_text(GATED)
    path = tmp_path / "small.json"
    path.write_text(json.dumps(JOB))
    return str(path)


@pytest.fixture(autouse=True)
def leave_nothing(tmp_path: Path) -> Iterator[None]:
    """No run outlives its test, whatever that came to."""
    yield
    for group in groups(tmp_path):
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


def gated(folder: Path) -> str:
    return f"sh {folder}/run.sh {{result}} {folder}"


def words(small: str, run: str, *further: str, calls: int = 1) -> list[str]:
    study = Path(small).with_name("s.db")
    common = ("--proposer", "random", "--slurm", "--calls", str(calls), "--json", "--resume")
    return ["tune", small, *SPACE, "--study", str(study), "--run", run, *common, *further]


@contextmanager
def searching(arguments: list[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    with subprocess.Popen([*PROGRAM, *arguments], stdout=pipe, stderr=pipe, text=True, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def ledger(folder: Path) -> list[str]:
    path = folder / "ledger"
    return path.read_text().splitlines() if path.exists() else []


def groups(folder: Path) -> list[int]:
    """The process groups of the runs that have begun."""
    return [int(line.split()[1]) for line in ledger(folder) if line.startswith("begin")]


def until(true: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.05)


def left_of(run: str) -> list[str]:
    """Processes of submitit that have to do with a folder."""
    listed = subprocess.run(
        ["ps", "-A", "-ww", "-o", "stat=,pid=,args="], capture_output=True, text=True, check=True
    ).stdout
    return [line for line in listed.splitlines() if "submitit" in line and run in line and not line.startswith("Z")]


def tickets(folder: Path) -> list[dict[str, Any]]:
    with sqlite3.connect(folder / "s.db") as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute("SELECT * FROM queued")]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_search_that_is_stopped_cancels_its_jobs_and_says_which(
    cli: Any, small: str, tmp_path: Path, number: signal.Signals
) -> None:
    with searching(words(small, gated(tmp_path))) as process:
        until(lambda: groups(tmp_path))
        until(lambda: tickets(tmp_path)[0]["job"])
        (ticket,) = tickets(tmp_path)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.splitlines() == [f"cancelled 1 job in the queue: {ticket['job']}"]
    assert [alive(group) for group in groups(tmp_path)] == [[]]
    assert left_of(str(tmp_path)) == []
    assert tickets(tmp_path) == []
    (tmp_path / "gate").touch()
    done = cli(*words(small, gated(tmp_path), calls=2))
    assert done.document["study"]["statuses"] == {"ok": 2}, "the study goes on"
    assert len(groups(tmp_path)) == 3


def test_a_run_that_will_not_end_is_cancelled_too(small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIDS", str(tmp_path / "pid"))
    with searching(words(small, command("stubborn"))) as process:
        until((tmp_path / "pid").exists)
        until((tmp_path / "pid").read_text)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert err.startswith("cancelled 1 job in the queue: ")
    assert alive(int((tmp_path / "pid").read_text())) == []
    assert left_of(str(tmp_path)) == []


def test_signals_to_the_whole_group_are_no_crash_of_a_plan(small: str, tmp_path: Path) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        begun = len(groups(tmp_path))
        with searching(words(small, gated(tmp_path)), start_new_session=True) as process:
            until(lambda begun=begun: len(groups(tmp_path)) > begun)
            os.killpg(process.pid, number)
            out, err = process.communicate(timeout=60)
        assert process.returncode == 130
        assert "Traceback" not in err
        assert json.loads(out)["study"]["calls"] == 1
        assert json.loads(out)["study"]["statuses"] == {}
        assert [alive(group) for group in groups(tmp_path)] == [[]] * (begun + 1)


@pytest.mark.parametrize("quiet", [False, True])
def test_all_jobs_under_way_are_cancelled_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], quiet: bool
) -> None:
    (tmp_path / "run.sh").write_text(GATED)
    job = load_job(JOB)
    queued = Queued(words_of(gated(tmp_path), job), folder=str(tmp_path), timeout=60.0, workers=2, quiet=quiet)
    for number in range(2):
        queued.start(number, Candidate(written={}, job=job, peak_device=1.0))
    until(lambda: len(groups(tmp_path)) == 2)
    queued.close()
    assert [alive(group) for group in groups(tmp_path)] == [[], []]
    told = capsys.readouterr().err
    assert re.fullmatch("" if quiet else r"cancelled 2 jobs in the queue: \d+, \d+\n", told)


def test_a_search_without_a_study_cancels_its_jobs(small: str, tmp_path: Path) -> None:
    arguments = [word for word in words(small, gated(tmp_path)) if word not in ("--resume", "--study")]
    arguments.remove(str(tmp_path / "s.db"))
    with searching(arguments, cwd=tmp_path) as process:
        until(lambda: groups(tmp_path))
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert err.startswith("cancelled 1 job in the queue: ")
    assert alive(groups(tmp_path)[0]) == []


def test_a_job_that_a_killed_search_left_is_taken_over(small: str, tmp_path: Path) -> None:
    arguments = words(small, gated(tmp_path))
    with searching(arguments) as process:
        until(lambda: groups(tmp_path))
        until(lambda: tickets(tmp_path)[0]["job"])
        process.kill()
    (ticket,) = tickets(tmp_path)
    assert alive(groups(tmp_path)[0]), "a job outlives its search"
    with searching(arguments) as process:
        time.sleep(4)
        assert process.poll() is None
        assert len(groups(tmp_path)) == 1, "no second job for the plan"
        (tmp_path / "gate").touch()
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, out + err
    assert err.splitlines()[0] == f"took over 1 job of an earlier search: {ticket['job']}"
    study = json.loads(out)["study"]
    assert (study["statuses"], study["best"]["step_time"], study["reused"]) == ({"ok": 1}, 0.02, 0)
    assert [line.split()[0] for line in ledger(tmp_path)] == ["begin", "end"]
    assert tickets(tmp_path) == [ticket | {"search": ""}], "the trial keeps the id of its job"
    assert not list((tmp_path / "slurm-logs").glob("*.lock"))


def test_a_job_that_ended_while_no_one_searched_is_not_run_again(small: str, tmp_path: Path, cli: Any) -> None:
    arguments = words(small, gated(tmp_path))
    with searching(arguments) as process:
        until(lambda: groups(tmp_path))
        process.kill()
    (tmp_path / "gate").touch()
    until(lambda: not left_of(str(tmp_path)))
    done = cli(*arguments)
    assert done.document["study"]["statuses"] == {"ok": 1}
    assert len(groups(tmp_path)) == 1


def test_a_job_whose_id_was_never_written_down_is_found(small: str, tmp_path: Path, cli: Any) -> None:
    arguments = words(small, gated(tmp_path))
    with searching(arguments) as process:
        until(lambda: groups(tmp_path))
        process.kill()
    with sqlite3.connect(tmp_path / "s.db") as connection:
        connection.execute("UPDATE queued SET job = ''")
    (tmp_path / "gate").touch()
    assert cli(*arguments).document["study"]["statuses"] == {"ok": 1}
    assert len(groups(tmp_path)) == 1


def test_a_job_of_another_command_is_cancelled(small: str, tmp_path: Path, cli: Any) -> None:
    with searching(words(small, gated(tmp_path))) as process:
        until(lambda: groups(tmp_path))
        process.kill()
    (ticket,) = tickets(tmp_path)
    done = cli(*words(small, f"{sys.executable} {PRETEND} {{job}} {{result}} well"))
    assert done.document["study"]["statuses"] == {"ok": 1}
    (line,) = (line for line in done.err.splitlines() if line.startswith("cancelled"))
    assert line.startswith("cancelled 1 job of an earlier search, ")
    assert line.endswith(f": {ticket['job']}")
    assert alive(groups(tmp_path)[0]) == []
    assert [row["run"] for row in tickets(tmp_path)] != [ticket["run"]]


def test_a_job_that_ended_without_a_word_is_queued_again(small: str, tmp_path: Path, cli: Any) -> None:
    arguments = words(small, gated(tmp_path))
    with searching(arguments) as process:
        until(lambda: groups(tmp_path))
        time.sleep(0.3)
        process.kill()
    for line in left_of(str(tmp_path)):
        os.kill(int(line.split()[1]), signal.SIGKILL)
    until(lambda: not alive(groups(tmp_path)[0]))
    (tmp_path / "gate").touch()
    assert cli(*arguments).document["study"]["statuses"] == {"ok": 1}
    assert [line.split()[0] for line in ledger(tmp_path)] == ["begin", "begin", "end"]


def test_a_search_killed_with_its_group_runs_no_plan_twice(small: str, tmp_path: Path, cli: Any) -> None:
    arguments = words(small, gated(tmp_path))
    with searching(arguments, start_new_session=True) as process:
        until(lambda: groups(tmp_path))
        os.killpg(process.pid, signal.SIGKILL)
    assert alive(groups(tmp_path)[0])
    (tmp_path / "gate").touch()
    assert cli(*arguments).document["study"]["statuses"] == {"ok": 1}
    assert [line.split()[0] for line in ledger(tmp_path)] == ["begin", "end"]


def test_a_taken_over_job_that_no_one_asks_for_is_cancelled_at_the_end(small: str, tmp_path: Path, cli: Any) -> None:
    with searching(words(small, gated(tmp_path))) as process:
        until(lambda: groups(tmp_path))
        process.kill()
    done = cli(*words(small, gated(tmp_path), calls=0))
    assert [line.split()[0] for line in done.err.splitlines()[:2]] == ["took", "cancelled"]
    assert alive(groups(tmp_path)[0]) == []
    assert tickets(tmp_path) == []


def test_the_jobs_of_a_search_that_goes_on_are_left_alone(small: str, tmp_path: Path) -> None:
    with searching(words(small, gated(tmp_path))) as first:
        until(lambda: groups(tmp_path))
        with searching(words(small, gated(tmp_path))) as second:
            until(lambda: len(groups(tmp_path)) == 2)
            second.send_signal(signal.SIGTERM)
            _, err = second.communicate(timeout=60)
        assert err.startswith("cancelled 1 job in the queue: ")
        assert alive(groups(tmp_path)[0])
        (tmp_path / "gate").touch()
        out, _ = first.communicate(timeout=60)
    assert json.loads(out)["study"]["statuses"] == {"ok": 1}


def test_a_job_left_on_another_machine_is_told_of_and_kept(small: str, tmp_path: Path, cli: Any) -> None:
    with searching(words(small, gated(tmp_path))) as process:
        until(lambda: groups(tmp_path))
        process.kill()
    with sqlite3.connect(tmp_path / "s.db") as connection:
        connection.execute("UPDATE queued SET host = 'login-2'")
    (ticket,) = tickets(tmp_path)
    done = cli(*words(small, gated(tmp_path), calls=0))
    assert done.err.startswith("login-2 may still run 1 job of an earlier search: end them there: ")
    assert tickets(tmp_path) == [ticket]
    os.killpg(groups(tmp_path)[0], signal.SIGKILL)


def test_a_ticket_that_is_no_ticket_is_not_acted_on(small: str, tmp_path: Path, cli: Any) -> None:
    with searching(words(small, gated(tmp_path))) as process:
        until(lambda: groups(tmp_path))
        process.kill()
    (tmp_path / "gate").touch()
    until(lambda: not left_of(str(tmp_path)))
    for column, value in (("job", "--user=root"), ("run", "../../elsewhere"), ("search", "../x"), ("tasks", "many")):
        with sqlite3.connect(tmp_path / "s.db") as connection:
            connection.execute(f"UPDATE queued SET {column} = ?", (value,))
        done = cli(*words(small, gated(tmp_path), calls=0))
        assert "error" not in done.err
        assert "took over" not in done.err


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the jobs of a pretended Slurm, which is on the path."""
    folder, spool = tmp_path / "bin", tmp_path / "spool"
    folder.mkdir()
    spool.mkdir()
    program = Path(__file__).with_name("pretend_slurm.py").read_text()
    for name in ("sbatch", "srun", "squeue", "sacct", "scancel"):
        (folder / name).write_text(f"#!{sys.executable}\n{program}")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("PRETEND_SLURM", str(spool))
    return spool


def called(slurm: Path, name: str) -> list[str]:
    return [line for line in (slurm / "calls").read_text().splitlines() if line.split()[0] == name]


def test_slurm_is_told_to_cancel(slurm: Path, small: str, tmp_path: Path) -> None:
    with searching(words(small, gated(tmp_path))) as process:
        until(lambda: groups(tmp_path))
        process.send_signal(signal.SIGHUP)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "cancelled 1 job in the queue: 41\n"), out
    assert called(slurm, "scancel") == ["scancel 41"]
    assert (slurm / "job-41").read_text().split()[1:] == ["1", "8"]
    until(lambda: not any(alive(group) for group in groups(tmp_path)))


def test_slurm_jobs_of_a_killed_search_are_taken_over(slurm: Path, small: str, tmp_path: Path) -> None:
    job = json.loads(Path(small).read_text())
    job["cluster"]["num_accelerators"] = job["plan"]["batch"]["global_batch_size"] = 16
    Path(small).write_text(json.dumps(job))
    arguments = words(small, gated(tmp_path))
    with searching(arguments) as process:
        until(lambda: len(groups(tmp_path)) == 2)  # one a node
        process.kill()
    with searching(arguments) as process:
        until(lambda: called(slurm, "squeue"))
        time.sleep(3)
        (tmp_path / "gate").touch()
        out, err = process.communicate(timeout=60)
    assert err.splitlines()[0] == "took over 1 job of an earlier search: 41"
    assert json.loads(out)["study"]["statuses"] == {"ok": 1}
    assert len(called(slurm, "sbatch")) == 1
    assert called(slurm, "scancel") == []
    assert len(groups(tmp_path)) == 2


def test_a_queue_that_does_not_answer_is_an_error(slurm: Path, small: str, tmp_path: Path, cli: Any) -> None:
    arguments = words(small, gated(tmp_path))
    with searching(arguments) as process:
        until(lambda: groups(tmp_path))
        process.kill()
    squeue = tmp_path / "bin" / "squeue"
    program = squeue.read_text()
    squeue.write_text("#!/bin/sh\necho 'slurm_load_jobs error: Unable to contact slurm controller' >&2\nexit 1\n")
    done = cli(*arguments)
    fault = done.document["error"]["faults"][0]
    assert done.code == 2
    assert "Unable to contact slurm controller" in fault["rule"]
    assert "--resume" in fault["remedy"]
    squeue.write_text(program)
    (tmp_path / "gate").touch()
    assert cli(*arguments).document["study"]["statuses"] == {"ok": 1}
    assert len(called(slurm, "sbatch")) == 1


def test_a_job_that_cannot_be_cancelled_is_told_of_and_kept(slurm: Path, small: str, tmp_path: Path) -> None:
    scancel = tmp_path / "bin" / "scancel"
    scancel.write_text("#!/bin/sh\nexit 1\n")
    with searching(words(small, gated(tmp_path))) as process:
        until(lambda: groups(tmp_path))
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert err == "could not cancel 1 job: end them with scancel: 41\n"
    assert [ticket["job"] for ticket in tickets(tmp_path)] == ["41"]
    for path in slurm.glob("job-*"):
        os.killpg(int(path.read_text().split()[0]), signal.SIGKILL)
