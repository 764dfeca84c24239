"""What an import loads is a contract; how long it takes is measured in benchmarks/."""

from __future__ import annotations

import json
import subprocess
import sys

PROBE = """
import json, sys
before = set(sys.modules)
{statement}
print(json.dumps(sorted({{name.split(".")[0] for name in set(sys.modules) - before}})))
"""


def loaded(statement: str) -> set[str]:
    """Top-level modules that a statement loads in a fresh interpreter."""
    probe = PROBE.format(statement=statement)
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def third_party(modules: set[str]) -> set[str]:
    return modules - set(sys.stdlib_module_names) - {"windtunnel"}


def test_importing_the_package_loads_no_third_party_module():
    assert third_party(loaded("import windtunnel")) == set()


def test_importing_the_entry_point_loads_no_third_party_module():
    assert third_party(loaded("from windtunnel.cli import main")) == set()


def test_help_loads_neither_arrays_nor_formats():
    statement = "import io, contextlib\nfrom windtunnel.cli.app import run\n"
    statement += "with contextlib.redirect_stdout(io.StringIO()): run(['--help'])"
    assert not loaded(statement) & {"numpy", "pydantic", "ruamel"}


def test_projecting_needs_no_torch():
    assert "torch" not in loaded("import windtunnel.projection, windtunnel.cli.project, windtunnel.report.text")
