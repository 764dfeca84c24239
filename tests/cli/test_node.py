"""How a run on a node ended, read back from what was written there; whatever else lies there is not believed."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from windtunnel.cli.execution import Ended
from windtunnel.cli.node import ended_of

WELL = Ended(code=0, said="done", seconds=2.0)


def write(folder: Path, rank: int, ended: Ended) -> None:
    (folder / f"ended-{rank}.json").write_text(json.dumps(asdict(ended)))


def test_a_job_has_ended_when_all_its_tasks_have(tmp_path: Path) -> None:
    write(tmp_path, 0, WELL)
    assert ended_of(tmp_path, 1) == WELL
    assert ended_of(tmp_path, 2) is None
    failed = Ended(code=None, said="ran longer than 4 s", seconds=4.0, timed_out=True)
    write(tmp_path, 1, failed)
    assert ended_of(tmp_path, 2) == failed, "the first that failed"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "[" * 100_000,
        '{"code": 0}',
        '{"code": true, "said": "", "seconds": 1.0, "timed_out": false}',
        '{"code": "0", "said": "", "seconds": 1.0, "timed_out": false}',
        '{"code": 0, "said": 1, "seconds": 1.0, "timed_out": false}',
        '{"code": 0, "said": "", "seconds": NaN, "timed_out": false}',
        '{"code": 0, "said": "", "seconds": -1.0, "timed_out": false}',
        '{"code": 0, "said": "", "seconds": 1.0, "timed_out": 0}',
    ],
)
def test_what_no_task_wrote_is_as_if_it_were_not_there(tmp_path: Path, text: str) -> None:
    (tmp_path / "ended-0.json").write_text(text)
    assert ended_of(tmp_path, 1) is None
