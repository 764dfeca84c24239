"""``windtunnel project --profile``: the projection on measured seconds, or both projections op by op."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from windtunnel.cli.output import Output, print_json, print_screen, print_warnings
from windtunnel.errors import Fault, MissingError

if TYPE_CHECKING:
    from windtunnel.job.job import Job


def project_measured(job: Job, path: str | None, mode: str, output: Output) -> int:
    """Print the projection of ``job``. Raises MissingError where a mode needs a profile and none was named."""
    from windtunnel.catalog.profiles import read_profile
    from windtunnel.cost.measured import device_warnings
    from windtunnel.cost.simulated import simulated_source
    from windtunnel.projection.evidence import OpComparison, compare_ops
    from windtunnel.projection.measured import project_measured as run
    from windtunnel.projection.project import project
    from windtunnel.report.json import projection_document, warnings_of
    from windtunnel.report.measured import ops_document, ops_text, provenance_text
    from windtunnel.report.text import projection_text

    if path is None and mode != "simulated":
        raise MissingError(Fault("--mode", mode, "measured seconds need a profile", "add --profile FILE"))
    simulated = project(job)
    projection, rows = simulated, list[OpComparison]()
    if path is not None and mode != "simulated":
        profile = read_profile(path)
        measured, source = run(job, profile)
        projection = replace(measured, warnings=(*job.warnings, *device_warnings(job, profile)))
        rows += compare_ops(job, simulated_source(job), measured.job, source, projection.busiest_stage)
    print_warnings(warnings_of(projection), output)
    if output.json:
        document = projection_document(projection)
        if mode == "both":
            document["simulated"] = projection_document(simulated)
            document["ops"] = ops_document(rows)
        print_json(document)
        return 0
    print_screen(projection_text(projection), output)
    if mode != "simulated":
        print_screen(provenance_text(projection, simulated), output)
    if mode == "both":
        print_screen(ops_text(rows), output)
    return 0
