"""What the data cites of the model's own pages is there, and the pages name every constant of the model."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from windtunnel.catalog.files import JOB_LIMIT, read_yaml
from windtunnel.catalog.names import names_by_kind

ROOT = Path(__file__).parents[2]
DATA = ROOT / "src" / "windtunnel" / "data"
FILES = sorted(DATA.rglob("*.yaml"))
PAGES = {"time": "docs/time-model.md", "memory": "docs/memory-model.md"}

_LINK = re.compile(r"docs/(?P<page>(?:time|memory)-model\.md)(?: section (?P<section>\d+))?(?P<evidence>[:,;] \w)?")
_LONG = re.compile(r"windtunnel (?P<model>time|memory) model(?:, section (?P<section>\d+))?")


@cache
def sections(page: str) -> frozenset[int]:
    """Numbers of the headings of a page."""
    return frozenset(int(number) for number in re.findall(r"^## (\d+)\. ", (ROOT / page).read_text(), re.M))


def sources(file: Path) -> list[str]:
    """Every text of a data file."""
    return [match[1] for match in re.finditer(r'"([^"\n]*)"', file.read_text())]


def ids(file: Path) -> str:
    return str(file.relative_to(DATA))


@pytest.mark.parametrize("file", FILES, ids=ids)
def test_a_section_that_is_cited_exists(file: Path):
    for text in sources(file):
        for link in _LINK.finditer(text):
            assert link["section"], f"{file.name}: name a section: {text}"
            assert int(link["section"]) in sections(f"docs/{link['page']}"), f"{file.name}: no such section: {text}"
        for link in _LONG.finditer(text):
            assert link["section"], f"{file.name}: name a section: {text}"
            assert int(link["section"]) in sections(PAGES[link["model"]]), f"{file.name}: no such section: {text}"


@pytest.mark.parametrize("file", sorted((DATA / "software").glob("*.yaml")), ids=ids)
def test_what_cites_a_page_of_the_model_also_states_its_evidence(file: Path):
    for text in sources(file):
        assert not _LONG.search(text), f"{file.name}: write docs/PAGE.md section N: evidence; found {text}"
        for link in _LINK.finditer(text):
            assert link["evidence"] or link.start() > 0, f"{file.name}: half a line of evidence is due: {text}"


@pytest.mark.parametrize("page", PAGES.values())
def test_sections_are_numbered_from_one(page: str):
    headings = re.findall(r"^## (.*)$", (ROOT / page).read_text(), re.M)
    assert [heading.split(".")[0] for heading in headings] == [str(n + 1) for n in range(len(headings))]


def constants() -> list[tuple[str, str]]:
    read = read_yaml(str(DATA / "calibration" / "simulated.yaml"), limit_bytes=JOB_LIMIT)
    assert isinstance(read, dict)
    return [(group, name) for group, entries in read.items() for name in entries]


@pytest.mark.parametrize(("group", "name"), constants())
def test_a_constant_of_the_model_is_named_where_its_formula_is(group: str, name: str):
    text = (ROOT / PAGES["memory" if group == "memory" else "time"]).read_text()
    formulas = "\n".join(line for line in text.splitlines() if line.startswith("    "))
    in_formula = re.search(rf"\b{name}\b", formulas) is not None
    assert in_formula or f"`{name}`" in text or f"`{group}.{name}`" in text


def test_every_constant_says_its_kind_and_source():
    read = read_yaml(str(DATA / "calibration" / "simulated.yaml"), limit_bytes=JOB_LIMIT)
    assert isinstance(read, dict)
    for entries in read.values():
        for name, entry in entries.items():
            assert entry["kind"] in ("measured", "cited", "global", "scoped", "assumed"), name
            assert entry["source"].strip(), name


@pytest.mark.parametrize("kind", ["accelerators", "clusters", "models", "frameworks", "schedules"])
def test_the_readme_counts_what_is_in_the_box(kind: str):
    found = re.search(rf"^\| {kind} \| (\d+)\b", (ROOT / "README.md").read_text(), re.M)
    assert found is not None
    assert int(found[1]) == len(names_by_kind()["software" if kind == "frameworks" else kind])
