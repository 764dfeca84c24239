"""The names at the package's top: few, lazy, and all of them real."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

import windtunnel

SOURCE = Path(__file__).parents[2] / "src" / "windtunnel"
PACKAGES = sorted(file for file in SOURCE.rglob("__init__.py") if "__all__" in file.read_text())


def test_the_public_names():
    assert windtunnel.__all__ == ["Job", "Projection", "WindtunnelError", "__version__", "load_job", "project"]
    assert dir(windtunnel) == windtunnel.__all__


@pytest.mark.parametrize("name", windtunnel.__all__)
def test_a_public_name_is_there(name: str):
    assert getattr(windtunnel, name) is not None


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'simulate'"):
        _ = windtunnel.simulate  # type: ignore[attr-defined]


def test_the_version_is_semantic():
    assert re.fullmatch(r"\d+\.\d+\.\d+", windtunnel.__version__)


@pytest.mark.parametrize("file", PACKAGES, ids=lambda file: str(file.parent.relative_to(SOURCE)))
def test_a_package_has_the_names_it_lists(file: Path):
    module = importlib.import_module(".".join(("windtunnel", *file.parent.relative_to(SOURCE).parts)))
    assert [name for name in module.__all__ if not hasattr(module, name)] == []
    assert len(set(module.__all__)) == len(module.__all__)


@pytest.mark.parametrize("file", sorted(SOURCE.rglob("*.py")), ids=lambda file: str(file.relative_to(SOURCE)))
def test_a_module_says_what_it_is_for(file: Path):
    tree = ast.parse(file.read_text())
    assert not tree.body or ast.get_docstring(tree), f"{file.name} has no docstring"
