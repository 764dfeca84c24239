"""``windtunnel compare``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from windtunnel.cli.flags import NO_FLAGS, JobFlags, request
from windtunnel.cli.output import DEFAULT, Output, print_json, print_screen, print_warnings
from windtunnel.errors import Fault, FormatError

if TYPE_CHECKING:
    from windtunnel.job.job import Job


def compare(
    *jobs: Annotated[str, Parameter(help="Two job files or more; one, or flags alone, with --vary.")],
    vary: Annotated[str | None, Parameter(help="PATH=A,B,…: one job per value of a job path.")] = None,
    flags: JobFlags = NO_FLAGS,
    output: Output = DEFAULT,
) -> int:
    """Jobs side by side; each difference is attributed to terms that sum."""
    from windtunnel.projection.compare import compare as difference
    from windtunnel.projection.project import project
    from windtunnel.report.json import compare_document, warnings_of

    named = _varied(jobs, vary, flags) if vary else _listed(jobs, flags)
    projections = [project(job) for _, job in named]
    deltas = difference(projections)
    print_warnings(dict.fromkeys(text for projection in projections for text in warnings_of(projection)), output)
    if output.json:
        print_json(compare_document(projections, deltas))
        return 0
    from windtunnel.catalog.dump import job_to_mapping
    from windtunnel.report.compare import compare_text

    mappings = [job_to_mapping(job) for _, job in named]
    print_screen(compare_text([name for name, _ in named], projections, deltas, mappings), output)
    return 0


def _listed(jobs: tuple[str, ...], flags: JobFlags) -> list[tuple[str, Job]]:
    if len(jobs) < 2:
        rule = "comparing takes two jobs or more"
        raise FormatError(Fault("JOB", " ".join(jobs), rule, "name another job file, or use --vary PATH=A,B"))
    return [(_name(source), request(source, flags).load()) for source in jobs]


def _name(source: str) -> str:
    return source.rsplit("/", 1)[-1].removesuffix(".yaml").removesuffix(".json")


def _varied(jobs: tuple[str, ...], vary: str, flags: JobFlags) -> list[tuple[str, Job]]:
    from windtunnel.catalog.overrides import parse_overrides

    path, equals, values = vary.partition("=")
    choices = [value.strip() for value in values.split(",") if value.strip()]
    if not equals or not path or len(choices) < 2 or len(jobs) > 1:
        rule = "--vary takes one job and PATH=A,B with two values or more"
        raise FormatError(Fault("--vary", vary, rule, "write for example --vary plan.parallel.tp=1,2,4,8"))
    asked = request(jobs[0] if jobs else None, flags)
    short = path.rsplit(".", 1)[-1]
    return [(f"{short} {value}", asked.load(parse_overrides([f"{path}={value}"]))) for value in choices]
