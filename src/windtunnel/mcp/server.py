"""The tools as an MCP server: schemas from the same forms, answers from the same desk."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import mcp_types as types
from mcp.server.lowlevel import Server

import windtunnel
from windtunnel.agent.tools import TOOLS, Tool
from windtunnel.mcp.desk import Desk

INSTRUCTIONS = """\
windtunnel projects memory and step time of LLM training plans. Ask evaluate, sweep, explain, compare and the others
about the job the server was started with, or send one along as "job" (the job format: model, cluster, software, plan).
Changes are job paths to values. What is illegal is answered with the rule and the nearest repairs."""
JOB = {
    "type": "object",
    "description": "A job in windtunnel's job format; without it, the one the server was started with.",
}


class Service:
    """A desk behind one thread: a study file keeps to the thread that opened it."""

    def __init__(self, job: str | None, study: str | None) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._desk = self._thread.submit(Desk, job, study).result()

    async def list_tools(self, _context: Any, _params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_offered(tool) for tool in TOOLS.values()])

    async def call_tool(self, _context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        loop = asyncio.get_running_loop()
        answer = await loop.run_in_executor(self._thread, self._desk.answer, params.name, params.arguments or {})
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=json.dumps(answer))],
            structured_content=answer,
            is_error="error" in answer,
        )

    @property
    def server(self) -> Server[Any]:
        return Server(
            "windtunnel",
            version=windtunnel.__version__,
            instructions=INSTRUCTIONS,
            on_list_tools=self.list_tools,
            on_call_tool=self.call_tool,
        )


def _offered(tool: Tool) -> types.Tool:
    schema = tool.schema
    schema["properties"] = {**schema.get("properties", {}), "job": JOB}
    quiet = tool.name not in ("evaluate", "scratchpad")
    return types.Tool(
        name=tool.name,
        description=tool.words,
        input_schema=schema,
        annotations=types.ToolAnnotations(read_only_hint=quiet, destructive_hint=False, open_world_hint=False),
    )


async def over_stdio(service: Service) -> None:
    from mcp.server.stdio import stdio_server

    server = service.server
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())
