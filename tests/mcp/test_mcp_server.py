"""The official client against the real server: a process on stdio, and one on a loopback port."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import jsonschema
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters

from windtunnel.catalog.jobs import load_job
from windtunnel.mcp.desk import Desk
from windtunnel.projection.project import project
from windtunnel.store.study_file import StudyFile

JOB = """
model: llama3.1-8b
cluster: {accelerator: h100-sxm-80gb, num_accelerators: 8}
software: {framework: megatron-core, date: 2025-02}
plan:
  parallel: {tp: 2, pp: 2}
  batch: {micro_batch_size: 1, global_batch_size: 32, sequence_length: 4096}
"""
MAPPING: dict[str, Any] = {
    "model": "llama3.2-1b",
    "cluster": {"accelerator": "a100-sxm-80gb", "num_accelerators": 4},
    "plan": {"batch": {"micro_batch_size": 1, "global_batch_size": 16, "sequence_length": 2048}},
}
QUESTIONS: dict[str, dict[str, Any]] = {
    "evaluate": {"changes": {"plan.parallel.tp": 4}},
    "memory": {"changes": {}},
    "sweep": {"axes": {"plan.parallel.tp": [1, 2, 4]}},
    "axes": {},
    "history": {"show": "recent"},
    "sensitivity": {"changes": {}},
    "explain": {"changes": {}},
    "compare": {"first": {}, "second": {"plan.parallel.tp": 4}},
    "stages": {"changes": {}},
    "scratchpad": {"text": "seen"},
}
COMMAND = ["-c", "from windtunnel.cli import main; main()", "mcp"]


@pytest.fixture(scope="module")
def job_file(tmp_path_factory: Any) -> Path:
    path = tmp_path_factory.mktemp("mcp") / "job.yaml"
    path.write_text(JOB)
    return path


@pytest.fixture(scope="module")
def port(job_file: Path) -> Iterator[str]:
    """The address of a server on a free loopback port."""
    command = [sys.executable, *COMMAND, str(job_file), "--http", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.fullmatch(r"serving MCP on (http://127\.0\.0\.1:\d+/mcp)\n", line)
        assert found, line
        yield found[1]
    finally:
        process.terminate()
        process.wait(20)


def asked(server: Any, talk: Callable[[Client], Awaitable[None]]) -> None:
    async def whole() -> None:
        with anyio.fail_after(120):
            async with Client(server) as client:
                await talk(client)

    anyio.run(whole)


def over_stdio(*arguments: str) -> StdioServerParameters:
    return StdioServerParameters(command=sys.executable, args=[*COMMAND, *arguments], env=dict(os.environ))


def document(result: Any) -> Any:
    assert result.structured_content == json.loads(result.content[0].text)
    return result.structured_content


async def every_tool(client: Client) -> None:
    """Lists and calls all of them; schemas are valid and take the questions; wrong ones are answered."""
    tools = (await client.list_tools()).tools
    assert [tool.name for tool in tools] == list(QUESTIONS)
    for tool in tools:
        jsonschema.Draft202012Validator.check_schema(tool.input_schema)
        jsonschema.validate(QUESTIONS[tool.name], tool.input_schema)
        assert tool.description
        result = await client.call_tool(tool.name, QUESTIONS[tool.name])
        assert not result.is_error, result
        document(result)
        wrong = await client.call_tool(tool.name, {**QUESTIONS[tool.name], "chnages": {}})
        assert wrong.is_error
        assert document(wrong)["error"][0]["rule"] == "unknown key"
        assert document(wrong)["error"][0]["remedy"]


def test_every_tool_over_stdio(job_file: Path) -> None:
    async def talk(client: Client) -> None:
        await every_tool(client)
        answer = project(load_job(str(job_file), set={"plan.parallel.tp": 4}))
        found = document(await client.call_tool("evaluate", QUESTIONS["evaluate"]))
        assert found["step_time_s"] == pytest.approx(answer.step_time, rel=1e-4)

    asked(over_stdio(str(job_file)), talk)


def test_every_tool_over_http(port: str) -> None:
    asked(port, every_tool)


def test_two_clients_share_the_server_of_one_job(port: str) -> None:
    async def one(client: Client) -> None:
        await client.call_tool("scratchpad", {"text": "from one to the other"})

    async def other(client: Client) -> None:
        assert document(await client.call_tool("scratchpad", {}))["text"] == "from one to the other"

    asked(port, one)
    asked(port, other)


def test_a_job_sent_along_and_a_server_without_one() -> None:
    async def talk(client: Client) -> None:
        missing = await client.call_tool("evaluate", {"changes": {}})
        assert missing.is_error
        assert document(missing)["error"][0]["path"] == "job"
        sent = document(await client.call_tool("evaluate", {"changes": {}, "job": MAPPING}))
        assert sent["step_time_s"] == pytest.approx(project(load_job(MAPPING)).step_time, rel=1e-4)
        unknown = await client.call_tool("shell", {"command": "id"})
        assert "known: evaluate" in document(unknown)["error"][0]["remedy"]

    asked(over_stdio(), talk)


@pytest.mark.parametrize(
    "job",
    [
        {**MAPPING, "model": "/etc/passwd"},
        {**MAPPING, "model": "./config.json"},
        {**MAPPING, "model": {"base": "/etc/passwd"}},
        {**MAPPING, "plan": {**MAPPING["plan"], "pipeline": {"orders": "/etc/passwd"}}},
        {**MAPPING, "cluster": {"accelerator": "../../etc/passwd", "num_accelerators": 4}},
        {"model": "llama3.2-1b"},
        "job.yaml",
        ["x"],
    ],
)
def test_a_job_sent_along_opens_no_file(job: Any) -> None:
    found = Desk(None, None).answer("evaluate", {"changes": {}, "job": job})
    assert found["error"][0]["rule"]
    assert found["error"][0]["remedy"]
    assert "root:" not in json.dumps(found)


def test_trials_are_screened_counted_and_kept(job_file: Path, tmp_path: Path) -> None:
    desk = Desk(str(job_file), str(tmp_path / "s.db"))
    good = desk.answer("evaluate", {"changes": {"plan.parallel.tp": 4}, "trial": True, "hypothesis": "why not"})
    assert good["status"] == "ok"
    illegal = desk.answer("evaluate", {"changes": {"plan.parallel.tp": 3}, "trial": True})
    assert illegal["legal"] is False
    assert illegal["faults"][0]["remedy"]
    large = {"plan.parallel.tp": 1, "plan.parallel.pp": 1, "plan.batch.micro_batch_size": 4}
    refused = desk.answer("evaluate", {"changes": large, "trial": True})
    assert (refused["fits"], refused["memory"]["verdict"]) == (False, "oom")
    assert refused["repairs"]
    cheat = desk.answer("evaluate", {"changes": {"plan.batch.global_batch_size": 8}, "trial": True})
    assert cheat["legal"] is False
    history = desk.answer("history", {"show": "best"})
    assert (history["trials"], history["calls"]) == (4, 1)
    kept = StudyFile.open(str(tmp_path / "s.db"))
    assert [row.trial.outcome.status for row in kept.rows()] == ["ok", "illegal", "infeasible", "illegal"]
    assert next(kept.rows()).trial.reason == "why not"
    kept.close()
