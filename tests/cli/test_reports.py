"""``tune --report``, ``--plot`` and ``study report`` at a terminal."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

NARROW = ("--vary", "plan.parallel.tp=1,2,4", "--vary", "plan.parallel.pp=1,2")
STUDY = ("--proposer", "seed,random", "--calls", "24")


def _words(page: Path) -> str:
    return " ".join(page.read_text().split())


def test_a_study_is_reported_from_its_file_as_when_it_ended(cli: Any, job_file: str, tmp_path: Path) -> None:
    file, early, late = (str(tmp_path / name) for name in ("s.db", "early.md", "late.md"))
    assert cli("tune", job_file, *NARROW, *STUDY, "--study", file, "--report", early).code == 0
    done = cli("study", "report", file, "--out", late)
    assert (done.code, done.out) == (0, "")
    assert f"wrote {late}" in done.err
    known, again = (Path(page).read_text().splitlines() for page in (early, late))
    own = ("- ended:", "![")
    assert [line for line in known if not line.startswith(own)] == [line for line in again if not line.startswith(own)]
    assert (tmp_path / "early.svg").read_bytes() == (tmp_path / "late.svg").read_bytes()
    for section in ("The answer", "The plan", "From the baseline to the best plan", "Runners-up", "One step away",
                    "The search", "What helped", "What was tried", "What was refused, at no cost"):  # fmt: skip
        assert f"## {section}" in known
    document = cli("study", "report", file, "--json").document
    assert document["best"]["step_time"] == min(
        row["step_time"] for row in map(json.loads, cli("study", "export", file).out.splitlines()) if row["step_time"]
    )
    assert (tmp_path / "s.html").read_text().startswith("<!doctype html>")


def test_a_page_loads_nothing(cli: Any, job_file: str, tmp_path: Path) -> None:
    page = tmp_path / "r.html"
    assert cli("tune", job_file, *NARROW, *STUDY, "--report", str(page)).code == 0
    text = page.read_text()
    assert "default-src 'none'" in text
    assert len(text) < 200_000
    for word in ("<script", "src=", "href=", "url(", "@import"):
        assert word not in text


def test_a_search_of_every_plan_is_reported_too(cli: Any, job_file: str, tmp_path: Path) -> None:
    page = tmp_path / "r.html"
    pinned = ("--vary", "plan.batch.micro_batch_size=1", "--objective", "throughput,memory")
    assert cli("tune", job_file, *NARROW, *pinned, "--report", str(page)).code == 0
    said = _words(page)
    assert "certified: no plan of this space that fits is faster" in said
    assert "<h2>The front</h2>" in said
    assert "<svg" not in said


def test_what_does_not_fit_is_reported(cli: Any, job_file: str, tmp_path: Path) -> None:
    page = tmp_path / "r.md"
    tight = ("--set", "cluster.hbm_capacity=6 GiB", "--vary", "plan.parallel.tp=1", "--calls", "20")
    assert cli("tune", job_file, *tight, "--proposer", "seed", "--report", str(page)).code == 1
    assert "Nothing fits" in page.read_text()


def test_an_older_study_says_what_it_lacks(cli: Any, job_file: str, tmp_path: Path) -> None:
    file = tmp_path / "s.db"
    assert cli("tune", job_file, *NARROW, "--proposer", "random", "--calls", "2", "--study", str(file)).code == 0
    with sqlite3.connect(file) as connection:
        connection.execute("DELETE FROM study WHERE name = 'asked'")
    connection.close()
    done = cli("study", "report", str(file))
    assert (done.code, "study export" in done.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "named"),
    [(("--report", "r.pdf"), ".html"), (("--plot", "x.gif", "--proposer", "seed"), ".png")],
)
def test_other_formats_are_named(cli: Any, job_file: str, words: tuple[str, ...], named: str) -> None:
    done = cli("tune", job_file, *NARROW, *words)
    assert (done.code, named in done.err) == (2, True)


def test_png_without_its_extra_says_what_to_install(
    cli: Any, job_file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    done = cli("tune", job_file, *NARROW, *STUDY, "--plot", str(tmp_path / "p.png"))
    assert (done.code, "windtunnel[png]" in done.err) == (2, True)


def test_png_is_written(cli: Any, job_file: str, tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    plot = tmp_path / "p.png"
    assert cli("tune", job_file, *NARROW, *STUDY, "--plot", str(plot)).code == 0
    assert plot.read_bytes().startswith(b"\x89PNG")
