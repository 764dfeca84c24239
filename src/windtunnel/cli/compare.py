"""``windtunnel compare``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from windtunnel.cli.flags import NO_FLAGS, JobFlags, request
from windtunnel.cli.output import DEFAULT, Output, print_json, print_screen, print_warnings
from windtunnel.errors import Fault, FormatError

if TYPE_CHECKING:
    from windtunnel.job.job import Job
    from windtunnel.job.record import Record


def compare(
    *jobs: Annotated[
        str, Parameter(help="Two job files or more, the last may be a record; one, or flags alone, with --vary.")
    ],
    vary: Annotated[str | None, Parameter(help="PATH=A,B,…: one job per value of a job path.")] = None,
    flags: JobFlags = NO_FLAGS,
    output: Output = DEFAULT,
) -> int:
    """Jobs side by side; each difference is attributed to terms that sum. Against a record: what explains the gap."""
    from windtunnel.catalog.calibration import with_uncertainty
    from windtunnel.projection.compare import compare as difference
    from windtunnel.projection.project import project
    from windtunnel.report.json import compare_document, warnings_of

    record = None if vary or len(jobs) < 2 else _record(jobs[-1])
    if record is not None and len(jobs) == 2:
        return _against_record(request(jobs[0], flags).load(), record, output)
    named = _varied(jobs, vary, flags) if vary else _listed(jobs, flags)
    projections = [with_uncertainty(project(job)) for _, job in named]
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


def _record(source: str) -> Record | None:
    """The record a file holds, or None for a job file. Raises FormatError for a file of several."""
    from windtunnel.catalog.records import SkippedRecord, load_records

    if not source.endswith((".yaml", ".yml", ".json")) or not _holds_records(source):
        return None
    records = load_records([source])
    if len(records) != 1:
        rule, remedy = f"a job is compared with one record, not {len(records)}", "put the record in a file of its own"
        raise FormatError(Fault(source, "", rule, remedy))
    if isinstance(records[0], SkippedRecord):
        raise records[0].error
    return records[0]


def _holds_records(source: str) -> bool:
    from windtunnel.catalog.files import RECORDS_LIMIT, read_yaml

    content = read_yaml(source, limit_bytes=RECORDS_LIMIT)
    return isinstance(content, list) or (isinstance(content, dict) and "measured" in content)


def _against_record(job: Job, record: Record, output: Output) -> int:
    """The job's projection against a measured run: parts and constants that could explain the gap."""
    from windtunnel.calibration.gap import constants_that_explain, parts_that_explain
    from windtunnel.catalog.calibration import spreads, with_uncertainty
    from windtunnel.projection.project import project, step_time
    from windtunnel.records.compare import measured_step_time
    from windtunnel.report.gap import gap_document, gap_text

    seconds = measured_step_time(record)
    if seconds is None:
        rule = "a gap takes a measured speed, and the record publishes none"
        raise FormatError(Fault(record.id, "", rule, "name a record with a step time or a throughput"))
    projection = with_uncertainty(project(job))
    parts = parts_that_explain(projection, seconds)
    constants = constants_that_explain(projection, seconds, spreads().constants, step_time)
    if output.json:
        print_json(gap_document(projection, record.id, seconds, parts, constants))
    else:
        print_screen(gap_text(projection, record.id, seconds, parts, constants), output)
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
