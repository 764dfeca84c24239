"""``windtunnel fit``."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from windtunnel.cli.flags import NO_FLAGS, JobFlags, JobSource, request
from windtunnel.cli.output import DEFAULT, Output, print_json, print_screen, print_warnings


def fit(
    job: JobSource = None,
    /,
    *,
    error: Annotated[
        str | None, Parameter(help="An out-of-memory message of CUDA, HIP or XLA: says which class exceeded the plan.")
    ] = None,
    top: Annotated[int, Parameter(help="Remedies on the screen.")] = 12,
    flags: JobFlags = NO_FLAGS,
    output: Output = DEFAULT,
) -> int:
    """What makes a job fit: the smallest changes, ranked, each with its price in throughput."""
    from windtunnel.memory.diagnosis import diagnose
    from windtunnel.memory.message import read_message
    from windtunnel.projection.project import project
    from windtunnel.report.fit import fit_document, fit_text
    from windtunnel.report.json import warnings_of
    from windtunnel.search.fit import fit as remedies
    from windtunnel.search.fit import on_device

    message = None if error is None else read_message(error)
    asked = request(job, flags)
    capacity = None if message is None else message.capacity
    planned = asked.load()
    projection = project(on_device(planned, capacity))
    diagnosis = None if message is None else diagnose(planned, message, projection.memory.peak)
    beyond = 0.0 if diagnosis is None else diagnosis.beyond
    tight = project(on_device(planned, capacity, beyond))
    found = remedies(tight, lambda changes: on_device(asked.load(changes), capacity, beyond))
    print_warnings(warnings_of(projection), output)
    if output.json:
        print_json(fit_document(projection, found, diagnosis))
    else:
        print_screen(fit_text(projection, found[:top], diagnosis), output)
    return 0
