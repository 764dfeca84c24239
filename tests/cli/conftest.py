"""Running the command line in process."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from windtunnel.cli.app import run


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def cli(capsys):
    """``cli("project", "job.yaml", "--json")`` → exit code, stdout, stderr."""

    def call(*arguments: str) -> Done:
        code = run(arguments)
        out, err = capsys.readouterr()
        return Done(code, out, err)

    return call


@pytest.fixture
def job_file(tmp_path):
    """A small job on eight H100."""
    path = tmp_path / "job.yaml"
    path.write_text(
        """
model: llama3.1-8b
cluster: {accelerator: h100-sxm-80gb, num_accelerators: 8}
software: {framework: megatron-core, date: 2025-02}
plan:
  parallel: {tp: 2, pp: 2}
  batch: {micro_batch_size: 1, global_batch_size: 32, sequence_length: 4096}
"""
    )
    return str(path)
