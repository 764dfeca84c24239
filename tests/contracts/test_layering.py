"""A floor imports only floors below it, never a brother; heavy packages stay where they belong."""

from __future__ import annotations

import ast
import sys
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "windtunnel"
FILES = sorted(SOURCE.rglob("*.py"))

FLOORS = {
    "errors": 0, "units": 0, "dtypes": 0, "elementwise": 0,
    "job": 1,
    "ops": 2, "schedule": 2,
    "cost": 3, "memory": 3,
    "step": 4,
    "projection": 5,
    "search": 6, "calibration": 6,
    "catalog": 7, "store": 7,
    "measure": 8, "records": 8, "agent": 8, "frameworks": 8, "report": 8,
    "cli": 9, "web": 9, "mcp": 9,
}  # fmt: skip
"""Package or module below ``windtunnel`` to its floor."""

FIRST_FLOOR_OF_OTHERS = 7
"""Third-party packages are imported from this floor up."""

ARRAYS_AND_SOLVERS = {
    ("elementwise", "elementwise.py"): "numpy",
    ("projection", "compose.py"): "numpy",
    ("projection", "batch.py"): "numpy",
    ("projection", "batch_memory.py"): "numpy",
    ("projection", "batch_time.py"): "numpy",
    ("projection", "contents.py"): "numpy",
    ("projection", "options.py"): "numpy",
    ("projection", "shape.py"): "numpy",
    ("projection", "stages.py"): "numpy",
    ("search", "examine.py"): "numpy",
    ("search", "order_model.py"): "ortools",
    ("calibration", "fit.py"): "numpy",
    ("calibration", "anchor.py"): "numpy",
}
"""Where a lower floor may take arrays, or the solver of an extra."""


@cache
def imports(file: Path) -> tuple[tuple[str, int], ...]:
    """Every module a file imports, those inside functions and type-checking blocks included, with the line."""
    found: list[tuple[str, int]] = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file.name}:{node.lineno}: imports are absolute"
            module = node.module or ""
            # "from windtunnel import catalog" names the package in the alias
            names = [f"{module}.{alias.name}" for alias in node.names] if module == "windtunnel" else [module]
            found += [(name, node.lineno) for name in names]
    return tuple(found)


def home(file: Path) -> str:
    """The package or module below ``windtunnel`` that a file belongs to; "" for ``windtunnel/__init__.py``."""
    first = file.relative_to(SOURCE).parts[0]
    return "" if first == "__init__.py" else first.removesuffix(".py")


def test_every_package_has_a_floor():
    homes = {home(file) for file in FILES} - {""}
    assert homes <= FLOORS.keys()


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_imports_go_down_only(file: Path):
    here = home(file)
    for module, line in imports(file):
        parts = module.split(".")
        if parts[0] != "windtunnel" or len(parts) == 1:
            continue
        there = parts[1]
        if here in ("", there) or there not in FLOORS:
            continue
        # The three modules at the bottom share one floor and may use one another; packages of a floor may not.
        allowed = FLOORS[there] < FLOORS[here] or FLOORS[here] == 0 == FLOORS[there]
        assert allowed, f"{file.name}:{line}: {here} (floor {FLOORS[here]}) imports {there} (floor {FLOORS[there]})"


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_third_party_packages_stay_above(file: Path):
    here = home(file)
    for module, line in imports(file):
        top = module.split(".")[0]
        if top == "windtunnel" or top in sys.stdlib_module_names:
            continue
        if top == "torch":
            assert file.relative_to(SOURCE).parts[:2] == ("measure", "torch"), f"{file.name}:{line}: torch"
        elif ARRAYS_AND_SOLVERS.get((here, file.name)) == top:
            continue
        else:
            assert here != "", f"{file.name}:{line}: the package's top imports {top}"
            assert FLOORS[here] >= FIRST_FLOOR_OF_OTHERS, f"{file.name}:{line}: floor {FLOORS[here]} imports {top}"


@pytest.mark.parametrize("package", ["pydantic", "ruamel"])
def test_formats_are_read_in_one_place(package: str):
    users = {home(file) for file in FILES for module, _ in imports(file) if module.split(".")[0] == package}
    assert users <= {"catalog"}


def test_imports_at_module_level_have_no_cycle():
    graph = {
        module_name(file): {target for target in map(resolve, top_level(file)) if target is not None} for file in FILES
    }
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " → ".join((*path[path.index(module) :], module))
        if module not in done:
            for target in graph[module]:
                visit(target, (*path, module))
            done.add(module)

    for module in graph:
        visit(module, ())


def module_name(file: Path) -> str:
    parts = ("windtunnel", *file.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> frozenset[str]:
    return frozenset(map(module_name, FILES))


def resolve(name: str) -> str | None:
    """The file behind an imported name: the module itself, or the one that defines the name."""
    if name in modules():
        return name
    parent = name.rpartition(".")[0]
    return parent if parent in modules() else None


def top_level(file: Path) -> list[str]:
    """What is imported when the file is, as ``module.name`` so that a submodule is told from its package."""
    found: list[str] = []
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found
