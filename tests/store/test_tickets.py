"""Jobs of a queue in a study: beside trials, claimed once, and a search that lives told from one that was killed."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from store_writer import trial

from windtunnel.store.study_file import StudyFile
from windtunnel.store.tickets import Sign, Ticket, Tickets, lives

TICKET = Ticket(
    run="run-0123456789ab", oracle="slurm x", key="k", search="search-0123456789ab", cluster="slurm", host="login",
    job="", tasks=2,
)  # fmt: skip
OTHER = "search-ba9876543210"


def tickets(file: StudyFile) -> Tickets:
    return Tickets(file=file, oracle="slurm x", key=lambda _: "k")


def test_a_ticket_is_kept_claimed_once_and_forgotten(tmp_path: Path) -> None:
    file = StudyFile.create(str(tmp_path / "s.db"), {})
    kept = tickets(file)
    assert kept.waiting() == []
    kept.keep(TICKET)
    kept.keep(replace(TICKET, job="41"))
    (found,) = kept.waiting()
    assert found == replace(TICKET, job="41")
    assert kept.claim(found, OTHER)
    assert not kept.claim(found, "search-000000000000"), "another was sooner"
    assert kept.waiting() == [replace(found, search=OTHER)]
    kept.forget(found)
    assert kept.waiting() == []
    file.close()


def test_an_answered_trial_keeps_the_id_and_waits_for_no_one(tmp_path: Path) -> None:
    file = StudyFile.create(str(tmp_path / "s.db"), {})
    kept = tickets(file)
    kept.keep(TICKET)
    kept.settle(TICKET.search)
    assert kept.waiting() == [TICKET], "its trial is not there yet"
    assert not kept.answered(TICKET)
    file.record("slurm x", "k", trial(0), {})
    assert kept.answered(TICKET)
    kept.settle(TICKET.search)
    assert kept.waiting() == []
    assert file.read("queued", "run", "") == [(TICKET.run,)]
    file.close()


def test_a_study_from_before_opens_and_reads_the_same(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    file = StudyFile.create(str(path), {"job": {}})
    file.record("o", "k", trial(0), {})
    file.close()
    again = StudyFile.open(str(path))
    assert tickets(again).waiting() == []
    tickets(again).keep(TICKET)
    assert [row.trial for row in again.rows()] == [trial(0)]
    again.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone()[0] == 1


@pytest.mark.parametrize(
    "change",
    [{"run": "../run-0123456789ab"}, {"run": "run-0123456789ab\n"}, {"job": "--me"}, {"search": "/etc"}, {"tasks": 0}],
)
def test_names_that_are_none_are_passed_over(tmp_path: Path, change: dict[str, object]) -> None:
    file = StudyFile.create(str(tmp_path / "s.db"), {})
    tickets(file).keep(replace(TICKET, **change))
    assert tickets(file).waiting() == []
    file.close()


def test_a_sign_of_life_ends_with_its_process(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from windtunnel.store.tickets import Sign\n"
        f"sign = Sign(Path(sys.argv[1]), {OTHER!r}); print('here', flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert lives(tmp_path, OTHER)
        process.kill()
    assert not lives(tmp_path, OTHER)
    assert not lives(tmp_path, OTHER), "and no file of it is left"
    Sign(tmp_path, OTHER).close()
    assert list(tmp_path.iterdir()) == []
