"""docs/cli.md is the real help of every verb."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def _generator():
    spec = importlib.util.spec_from_file_location("docs_cli", ROOT / "docs" / "cli.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def words(page: str) -> list[str]:
    """What is said, however a version of the help's library draws it."""
    return re.sub(r"[^\w\s.,:;/()\[\]{}\"'`=*-]", " ", page).split()


def test_the_page_is_the_help():
    assert words((ROOT / "docs" / "cli.md").read_text()) == words(_generator().page()), "run make docs"
