"""Trials on disk: killed, crowded out of space, shared and damaged."""

from __future__ import annotations

import os
import random
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from store_writer import trial

from windtunnel.errors import FormatError, MissingError
from windtunnel.search.trial import Outcome, Trial
from windtunnel.store.study_file import StudyFile

WRITER = str(Path(__file__).with_name("store_writer.py"))


def writing(path: Path, *numbers: int, **options: object) -> subprocess.Popen[str]:
    command = [sys.executable, WRITER, str(path), *map(str, numbers)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, **options)  # type: ignore[call-overload]


def numbers(path: Path) -> list[int]:
    study = StudyFile.open(str(path))
    found = [row.trial.number for row in study.rows()]
    study.close()
    return found


def test_a_trial_comes_back_as_it_was(tmp_path: Path) -> None:
    study = StudyFile.create(str(tmp_path / "s.db"), {"job": {"model": "m"}, "seed": 3})
    outcome = Outcome(status="oom", why="CUDA out of memory", seconds=3.5, cost=28.0)
    kept = Trial(number=4, proposer="local", reason="why not", changes={"plan.recompute": {"policy": "none"}},
                 outcome=outcome)  # fmt: skip
    study.record("run x", "k", kept, {"plan.parallel.tp": 2})
    study.record("run x", "j", trial(5), {})
    study.close()
    again = StudyFile.open(str(tmp_path / "s.db"))
    assert again.facts() == {"job": {"model": "m"}, "seed": 3}
    first, second = again.rows()
    assert first.trial == kept
    assert (first.oracle, first.plan) == ("run x", {"plan.parallel.tp": 2})
    assert second.trial == trial(5)
    assert again.known("run x", "k") == outcome
    assert again.known("run y", "k") is None


def test_a_plan_is_counted_once_and_its_first_answer_stays(tmp_path: Path) -> None:
    study = StudyFile.create(str(tmp_path / "s.db"), {})
    refused = Trial(number=0, proposer="p", reason="r", changes={}, outcome=Outcome(status="infeasible", why="memory"))
    study.record("o", "k", refused, {})
    assert study.known("o", "k") is None
    assert study.record("o", "k", trial(1), {}) == trial(1).outcome
    assert study.record("o", "k", trial(2), {}) == trial(1).outcome
    study.record("o", "k", refused, {})
    assert [row.trial.number for row in study.rows()] == [1]
    study.record("other", "k", trial(3), {})
    assert len(list(study.rows())) == 2


def test_killed_at_fifty_moments_nothing_reported_is_lost(tmp_path: Path) -> None:
    path, generator, reported, first = tmp_path / "s.db", random.Random(1), set[int](), 0
    for moment in range(50):
        said = tmp_path / f"said {moment}"
        with said.open("w") as file:
            command = [sys.executable, WRITER, str(path), str(first), "100000"]
            process = subprocess.Popen(command, stdout=file)
            while not said.stat().st_size:
                time.sleep(0.001)
            time.sleep(generator.uniform(0.0, 0.03))
            process.kill()
            process.wait()
        reported |= {int(line) for line in said.read_text().split("\n")[:-1]}
        found = numbers(path)
        assert reported <= set(found)
        assert len(found) == len(set(found))
        assert len(set(found) - reported) <= moment + 1, "at most one more than was reported, each time"
        first = max(found) + 1


def test_four_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    processes = [writing(path, 1000 * k, 100) for k in range(4)]
    for process in processes:
        assert process.wait(120) == 0, process.communicate()[1]
    expected = {1000 * k + n for k in range(4) for n in range(100)}
    found = numbers(path)
    assert set(found) == expected
    assert len(found) == len(expected)


def test_many_that_begin_at_once_agree_on_one_study(tmp_path: Path) -> None:
    for number in range(3):
        path = tmp_path / f"{number}.db"
        processes = [writing(path, 10 * k, 2) for k in range(6)]
        assert [process.wait(120) for process in processes] == [0] * 6, [p.communicate()[1] for p in processes]
        assert sorted(numbers(path)) == sorted(10 * k + n for k in range(6) for n in range(2))


def test_a_database_of_someone_else_is_left_as_it_is(tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    before = path.read_bytes()
    for made in (StudyFile.open, lambda name: StudyFile.create(name, {})):
        with pytest.raises(FormatError, match="not a study"):
            made(str(path))
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["other.db"]


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))


def check_full(path: Path, process: subprocess.Popen[str]) -> None:
    """The process stopped with one clear line, and what it reported is there; with room it goes on."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "the study cannot be written" in err
    assert "--resume" in err
    assert "Traceback" not in err
    reported = [int(line) for line in out.splitlines()]
    assert reported
    found = numbers(path)
    assert set(reported) <= set(found)
    last = max(found) + 1
    study = StudyFile.open(str(path))
    study.record("o", "after", trial(last), {})
    study.close()
    assert numbers(path)[-1] == last


def test_a_file_that_may_not_grow_is_a_clear_error_and_stays_whole(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    check_full(path, writing(path, 0, 1000, 20_000, preexec_fn=limited))


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk takes root")
def test_a_full_disk_is_a_clear_error_and_the_study_stays_whole(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        full = disk / "s.db"
        process = writing(full, 0, 1000, 20_000)
        process.wait(120)
        for name in os.listdir(disk):
            shutil.copy(disk / name, tmp_path / name)
        check_full(tmp_path / "s.db", process)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize("damage", ["text", "header", "page", "empty table", "other database", "future"])
def test_a_damaged_study_is_an_error(tmp_path: Path, damage: str) -> None:
    import sqlite3

    path = tmp_path / "s.db"
    study = StudyFile.create(str(path), {"job": {}})
    for number in range(200):
        study.record("o", f"k{number}", trial(number, 500), {})
    study.close()
    content = bytearray(path.read_bytes())
    if damage == "text":
        path.write_text("model: llama\n" * 2000)
    elif damage == "header":
        path.write_bytes(b"\0" * 4096 + content[4096:])
    elif damage == "page":
        content[8192:30000] = os.urandom(30000 - 8192)
        path.write_bytes(content)
    else:
        connection = sqlite3.connect(tmp_path / ("t.db" if damage == "other database" else "s.db"))
        statement = {"empty table": "DROP TABLE trial", "other database": "CREATE TABLE t (x)",
                     "future": "PRAGMA user_version = 99"}[damage]  # fmt: skip
        connection.execute(statement)
        connection.commit()
        connection.close()
        if damage == "other database":
            path = tmp_path / "t.db"
    with pytest.raises(FormatError, match="stud"):
        list(StudyFile.open(str(path)).rows())


def test_a_study_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="no such study"):
        StudyFile.open(str(tmp_path / "none.db"))
    with pytest.raises(MissingError, match="folder"):
        StudyFile.create(str(tmp_path / "no" / "s.db"), {})
    with pytest.raises(FormatError):
        StudyFile.create(str(tmp_path), {})
