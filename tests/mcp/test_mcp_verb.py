"""The verb: what it refuses, and that it asks for nothing it does not need."""

from __future__ import annotations

import socket
import subprocess
import sys
from typing import Any

import pytest

RUN = [sys.executable, "-c", "from windtunnel.cli import main; main()", "mcp"]


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60, check=False)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["/no/such/job.yaml"], "/no/such/job.yaml"),
        (["--study", "s.db"], "--study"),
        (["--http", "70000"], "--http"),
        (["--http", "much"], "--http"),
    ],
)
def test_bad_words_are_named(words: list[str], named: str) -> None:
    done = subprocess.run(
        [*RUN, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60, check=False
    )
    assert done.returncode == 2
    assert named in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_that_is_taken_is_told() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = str(taken.getsockname()[1])
        done = run([*RUN, "--http", number])
    assert done.returncode == 2
    assert "cannot listen" in done.stderr


@pytest.mark.parametrize(("module", "extra", "words"), [
    ("mcp", "windtunnel[mcp]", ["mcp"]),
    ("pydantic_ai", "windtunnel[agent]", ["tune", "--model", "llama3.1-8b", "--accelerator", "h100-sxm-80gb",
     "--num-accelerators", "8", "--micro-batch-size", "1", "--global-batch-size", "32", "--sequence-length", "4096",
     "--proposer", "seed,llm", "--llm", "openai:gpt-5"]),
])  # fmt: skip
def test_an_extra_that_is_missing_is_named(module: str, extra: str, words: Any) -> None:
    block = f"import sys; sys.modules[{module!r}] = None; sys.modules['mcp_types'] = None"
    code = f"{block}; sys.argv = ['windtunnel', *{words!r}]\nfrom windtunnel.cli import main\nmain()"
    done = run([sys.executable, "-c", code])
    assert done.returncode == 2
    assert f'pip install "{extra}"' in done.stderr
