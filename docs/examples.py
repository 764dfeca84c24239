"""The examples in README and docs: found, run, compared, and pasted anew.

The convention: in a ``console`` block a line that starts with ``$ `` is a command, and the lines up to the next one are
what it prints. No lines: only the exit code 0 is asked for. A line ``...`` stands for any lines, ``...`` at the
end of a line for its rest. ``# exit 1`` at the end of a command names another exit code. A block below
``<!-- pasted by make docs -->`` is rewritten from a real run.
A ``yaml`` block that has ``model:``, ``cluster:`` and ``plan:`` at its left margin is a job and must load.

    python docs/examples.py FILE…    rewrite the pasted blocks of these files
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PASTED = "<!-- pasted by make docs -->"
_BLOCK = re.compile(r"^(?P<mark><!-- pasted by make docs -->\n)?```(?P<kind>\w+)\n(?P<body>.*?)^```$", re.M | re.S)
_EXIT = re.compile(r"\s+# exit (\d+)$")


@dataclass(frozen=True, slots=True)
class Example:
    """A command as documented: what to type, what it shows ("" where nothing is shown), how it exits."""

    file: str
    command: str
    shown: str
    exit_code: int
    pasted: bool


def examples(path: Path) -> list[Example]:
    """The commands of a page, in order."""
    found = []
    for block in _BLOCK.finditer(path.read_text()):
        if block["kind"] == "console":
            found += [_example(path, typed, block["mark"] is not None) for typed in _typed(block["body"])]
    return found


def jobs(path: Path) -> list[str]:
    """The job files of a page."""
    blocks = [block["body"] for block in _BLOCK.finditer(path.read_text()) if block["kind"] == "yaml"]
    return [body for body in blocks if all(re.search(rf"^{key}:", body, re.M) for key in ("model", "cluster", "plan"))]


def run(command: str) -> subprocess.CompletedProcess[str]:
    """The command from the top of the repository, without a shell; stdout and stderr together, no colour."""
    words = shlex.split(command)
    if words[0] == "windtunnel":
        words = [sys.executable, "-c", "from windtunnel.cli import main; main()", *words[1:]]
    environment = {**os.environ, "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
    return subprocess.run(
        words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )


def agrees(shown: str, printed: str) -> bool:
    """Whether output is what a page shows; trailing blanks do not count."""
    return re.fullmatch("".join(map(_pattern, _tidy(shown).splitlines())), _tidy(printed)) is not None


def _pattern(line: str) -> str:
    if line == "...":
        return r"(?:[^\n]*\n)*?"
    if line.endswith("..."):
        return re.escape(line.removesuffix("...")) + r"[^\n]*\n"
    return re.escape(line) + "\n"


def paste(path: Path) -> None:
    """Rewrite the pasted blocks of a page from real runs."""
    path.write_text(_BLOCK.sub(lambda block: _pasted(block, path) if block["mark"] else block[0], path.read_text()))


def _pasted(block: re.Match[str], path: Path) -> str:
    commands = [_example(path, typed, pasted=True) for typed in _typed(block["body"])]
    bodies = [f"$ {example.command}\n{_tidy(run(example.command).stdout)}" for example in commands]
    return f"{PASTED}\n```console\n{''.join(bodies)}```"


def _typed(body: str) -> list[str]:
    return [part for part in re.split(r"^\$ ", body, flags=re.M) if part.strip()]


def _example(path: Path, typed: str, pasted: bool) -> Example:
    line, _, shown = typed.partition("\n")
    code = _EXIT.search(line)
    return Example(path.name, _EXIT.sub("", line), shown, int(code[1]) if code else 0, pasted)


def _tidy(text: str) -> str:
    lines = [line.rstrip() for line in text.rstrip().splitlines()]
    return "".join(f"{line}\n" for line in lines)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        paste(Path(name))
