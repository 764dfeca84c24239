"""A study at a real terminal, and with its messages in a file."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

NARROW = ("--vary", "plan.parallel.tp=1,2,4", "--vary", "plan.parallel.pp=1,2", "--proposer", "seed", "--calls", "20")
COMMAND = [sys.executable, "-c", "from windtunnel.cli import main; main()", "tune"]


def _at_a_terminal(words: list[str], file: Path) -> tuple[bytes, bytes]:
    """What reaches stdout, and the terminal that stderr is."""
    leader, follower = pty.openpty()
    with file.open("wb") as out:
        environment = {**os.environ, "COLUMNS": "100", "TERM": "xterm"}
        run = subprocess.Popen(words, stdout=out, stderr=follower, env=environment)
    os.close(follower)
    screen = b""
    while True:
        try:
            piece = os.read(leader, 65536)
        except OSError:
            break
        if not piece:
            break
        screen += piece
    os.close(leader)
    assert run.wait() == 0
    return file.read_bytes(), screen


def test_a_terminal_shows_the_search_and_stdout_the_answer(job_file: str, tmp_path: Path) -> None:
    out, screen = _at_a_terminal([*COMMAND, job_file, *NARROW, "--json"], tmp_path / "out")
    assert json.loads(out)["study"]["calls"] <= 20
    shown = screen.decode()
    for word in ("best", "spent", "search", "last"):
        assert word in shown
    assert "\x1b[?25h" in shown, "the cursor comes back"
    quiet_out, quiet_screen = _at_a_terminal([*COMMAND, job_file, *NARROW, "--json", "--quiet"], tmp_path / "out")
    assert quiet_screen == b""
    assert json.loads(quiet_out)["top"] == json.loads(out)["top"]


def test_a_log_gets_whole_lines(cli: Any, job_file: str, tmp_path: Path) -> None:
    done = cli("tune", job_file, *NARROW, "--json", "--study", str(tmp_path / "s.db"))
    assert json.loads(done.out)["best"]
    lines = done.err.splitlines()
    assert lines
    assert all(line.startswith("[") and "calls, best" in line for line in lines)
    assert "\r" not in done.err
    assert cli("tune", job_file, *NARROW, "--json", "--quiet").err == ""
