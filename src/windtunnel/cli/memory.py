"""``windtunnel memory``."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from windtunnel.cli.flags import NO_FLAGS, JobFlags, JobSource, request
from windtunnel.cli.output import DEFAULT, Output, print_json, print_screen, print_warnings


def memory(
    job: JobSource = None,
    /,
    *,
    max: Annotated[
        str | None, Parameter(help="Largest micro_batch_size, sequence_length or both (with a comma) that still fit.")
    ] = None,
    flags: JobFlags = NO_FLAGS,
    output: Output = DEFAULT,
) -> int:
    """Bytes per rank class at each stage's peak moment."""
    from windtunnel.cli.largest import largest_values
    from windtunnel.projection.project import project
    from windtunnel.report.json import memory_document, warnings_of

    asked = request(job, flags)
    projection = project(asked.load())
    largest = largest_values(max.split(","), projection.job, asked.load) if max else {}
    print_warnings(warnings_of(projection), output)
    if output.json:
        document = memory_document(projection)
        if max:
            document["max"] = largest
        print_json(document)
        return 0
    from windtunnel.report.memory import memory_text

    print_screen(memory_text(projection, largest), output)
    return 0
