"""``windtunnel project``."""

from __future__ import annotations

from typing import Annotated

from windtunnel.cli.flags import NO_FLAGS, JobFlags, JobSource, request
from windtunnel.cli.output import DEFAULT, Output, print_json, print_screen, print_warnings, switch


def project(
    job: JobSource = None,
    /,
    *,
    explain: Annotated[bool, switch("What binds, and which knob helps most.")] = False,
    elasticity: Annotated[
        bool,
        switch("How step time follows each figure of cluster and software."),
    ] = False,
    flags: JobFlags = NO_FLAGS,
    output: Output = DEFAULT,
) -> int:
    """Memory and throughput of one job."""
    from windtunnel.projection.elasticity import elasticity as elasticities
    from windtunnel.projection.explain import explain as explanations
    from windtunnel.projection.project import project as run
    from windtunnel.report.json import elasticity_document, projection_document, warnings_of

    asked = request(job, flags)
    projection = run(asked.load())
    if explain:
        projection = explanations(projection, asked.load)
    slopes = elasticities(projection.job) if elasticity else None
    print_warnings(warnings_of(projection), output)
    if output.json:
        document = projection_document(projection)
        if slopes is not None:
            document["elasticity"] = elasticity_document(slopes)
        print_json(document)
        return 0
    from windtunnel.report.text import elasticity_text, explanation_text, projection_text

    print_screen(projection_text(projection), output)
    if explain:
        print_screen(explanation_text(projection), output)
    if slopes is not None:
        print_screen(elasticity_text(slopes), output)
    return 0
