"""``windtunnel mcp``."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter

from windtunnel.errors import Fault, FormatError, MissingError

LOOPBACK = "127.0.0.1"


def _switch(text: str) -> Parameter:
    return Parameter(negative="", show_default=False, help=text)


def mcp(
    job: Annotated[str | None, Parameter(help="Job file; without one, callers send jobs along.")] = None,
    /,
    *,
    http: Annotated[
        int | None,
        Parameter(metavar="PORT", help="Serve streamable HTTP on this port of the loopback; 0 takes a free one."),
    ] = None,
    study: Annotated[str | None, Parameter(metavar="FILE", help="Keep trials of the job in a study.")] = None,
    json: Annotated[bool, _switch("Faults as a JSON document on stdout; all else there is the protocol.")] = False,  # noqa: ARG001
    quiet: Annotated[bool, _switch("Do not say on stderr where it is served.")] = False,
    no_color: Annotated[bool, _switch("No colour: there is none.")] = False,  # noqa: ARG001
) -> int:
    """The tools of the tuning agent for any assistant that speaks MCP: on stdin and stdout, or on a loopback port."""
    if study is not None and job is None:
        raise FormatError(Fault("--study", study, "a study is about one job", "name the job file too"))
    try:
        from windtunnel.mcp.server import Service, over_stdio
    except ImportError:
        remedy = 'pip install "windtunnel[mcp]"'
        raise MissingError(Fault("mcp", "", "the MCP package is not installed", remedy)) from None
    service = Service(job, study)
    if http is None:
        import asyncio

        asyncio.run(over_stdio(service))
        return 0
    return _over_http(service, http, quiet=quiet)


def _over_http(service: object, port: int, *, quiet: bool) -> int:
    import socket

    import uvicorn

    from windtunnel.mcp.server import Service

    assert isinstance(service, Service)
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((LOOPBACK, port))
        listening.listen()  # before the address is told: who connects at once waits until the server accepts
    except (OSError, OverflowError) as error:
        listening.close()
        raise FormatError(
            Fault("--http", str(port), f"cannot listen there: {error}", "name a free port, or 0")
        ) from None
    with listening:
        if not quiet:
            sys.stderr.write(f"serving MCP on http://{LOOPBACK}:{listening.getsockname()[1]}/mcp\n")
            sys.stderr.flush()
        app = service.server.streamable_http_app(host=LOOPBACK)
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])
    return 0
