"""Floors 0 to 6 are pure: no IO, no environment, no clock, no mutable module state."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "windtunnel"
PURE = ("job", "ops", "schedule", "cost", "memory", "step", "projection", "search", "calibration")
FILES = sorted(
    [SOURCE / "errors.py", SOURCE / "units.py", SOURCE / "dtypes.py"]
    + [file for package in PURE for file in (SOURCE / package).rglob("*.py")]
)

FORBIDDEN_MODULES = {
    "io", "logging", "os", "pathlib", "random", "shutil", "socket", "subprocess", "sys", "tempfile", "threading",
    "time", "multiprocessing", "concurrent",
}  # fmt: skip
FORBIDDEN_CALLS = {"open", "print", "input", "exec", "eval", "globals", "breakpoint"}


def ids(file: Path) -> str:
    return str(file.relative_to(SOURCE))


@pytest.mark.parametrize("file", FILES, ids=ids)
def test_no_input_or_output(file: Path):
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            modules = {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules = {(node.module or "").split(".")[0]}
        else:
            modules = set()
        assert not modules & FORBIDDEN_MODULES, f"{file.name}:{node.lineno} imports {modules & FORBIDDEN_MODULES}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in FORBIDDEN_CALLS, f"{file.name}:{node.lineno} calls {node.func.id}()"


@pytest.mark.parametrize("file", FILES, ids=ids)
def test_nothing_changes_module_state(file: Path):
    for node in ast.walk(ast.parse(file.read_text())):
        assert not isinstance(node, ast.Global), f"{file.name}:{node.lineno} rebinds a module's name"


@pytest.mark.parametrize("file", FILES, ids=ids)
def test_caches_are_bounded(file: Path):
    for node in ast.walk(ast.parse(file.read_text())):
        if not isinstance(node, ast.FunctionDef):
            continue
        for decorator in node.decorator_list:
            text = ast.unparse(decorator)
            if text.split("(")[0] in ("cache", "functools.cache"):
                pytest.fail(f"{file.name}:{node.lineno}: cache has no bound; use lru_cache(maxsize=…)")
            if "lru_cache" in text:
                assert "maxsize=None" not in text, f"{file.name}:{node.lineno}: the cache has no bound"
