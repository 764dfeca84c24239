"""Docs run: every command in README and docs is executed, every job in them is loaded."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def _convention() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_examples", ROOT / "docs" / "examples.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


docs = _convention()
EXAMPLES = [example for page in PAGES for example in docs.examples(page)]
JOBS = [(page.name, text) for page in PAGES for text in docs.jobs(page)]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: f"{example.file}: {example.command}"[:80])
def test_an_example_prints_what_the_page_shows(example):
    done = docs.run(example.command)
    assert done.returncode == example.exit_code, done.stdout
    if example.shown.strip():
        remedy = "run make docs" if example.pasted else "correct the page"
        assert docs.agrees(example.shown, done.stdout), f"{remedy}; printed:\n{done.stdout}"


@pytest.mark.parametrize(("page", "text"), JOBS)
def test_a_job_on_a_page_loads(page: str, text: str, tmp_path: Path):
    from windtunnel import load_job

    file = tmp_path / "job.yaml"
    file.write_text(text)
    assert load_job(str(file)).model.num_layers > 0, page


def test_the_pages_hold_examples():
    assert len(EXAMPLES) >= 10
    assert JOBS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a  \nb", "a\nb\n\n", True),
        ("a\n...\nc\n", "a\nb\nb\nc\n", True),
        ("a\n...\n", "a\n", True),
        ("...\nc\n", "a\nb\nc\n", True),
        ("a\nc\n", "a\nb\nc\n", False),
        ("a\n...\nd\n", "a\nb\nc\n", False),
        ("a.c\n", "abc\n", False),
        ("a: ...\n", "a: 12\n", True),
        ("a: ...\n", "a: 12\nb\n", False),
    ],
)
def test_how_output_is_compared(shown: str, printed: str, same: bool):
    assert docs.agrees(shown, printed) is same
