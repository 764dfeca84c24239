"""``windtunnel check``."""

from __future__ import annotations

from windtunnel.cli.flags import NO_FLAGS, JobFlags, JobSource, request
from windtunnel.cli.output import DEFAULT, Output, print_json, print_screen, print_warnings


def check(job: JobSource = None, /, *, flags: JobFlags = NO_FLAGS, output: Output = DEFAULT) -> int:
    """Effective values and their origin, both grids, broken rules and their nearest repairs. Exit 1: illegal."""
    from windtunnel.job import legality
    from windtunnel.report.json import check_document

    draft = request(job, flags).draft()
    document = check_document(
        legality.violations(draft),
        legality.grids(draft),
        legality.minimum_accelerators(draft),
        draft.origin,
        draft.warnings,
    )
    print_warnings(document["warnings"], output)
    if output.json:
        print_json(document)
    else:
        from windtunnel.report.check import check_text

        print_screen(check_text(document), output)
    return 0 if document["legal"] else 1
