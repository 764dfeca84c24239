"""``windtunnel project``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from windtunnel.cli.flags import ALL_SCHEDULES, NO_FLAGS, JobFlags, JobSource, Request, request
from windtunnel.cli.output import DEFAULT, Output, print_json, print_note, print_screen, print_warnings, switch
from windtunnel.errors import Fault, FormatError, MissingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from windtunnel.calibration.anchor import Anchor
    from windtunnel.job.job import Job
    from windtunnel.projection.result import Projection
    from windtunnel.step.streams import StreamSpan


def project(
    job: JobSource = None,
    /,
    *,
    explain: Annotated[bool, switch("What binds, and which knob helps most.")] = False,
    elasticity: Annotated[
        bool,
        switch("How step time follows each figure of cluster and software."),
    ] = False,
    balance: Annotated[bool, switch("With the layers cut by what they cost, within what a stage holds.")] = False,
    timeline: Annotated[bool, switch("The shape of the step: a row a stage, time to the right.")] = False,
    trace: Annotated[
        str | None, Parameter(help="Write what runs when, and memory over time, to a file for Perfetto.")
    ] = None,
    profile: Annotated[
        str | None, Parameter(help="A profile of windtunnel measure: its seconds replace simulated ones.")
    ] = None,
    mode: Annotated[
        Literal["simulated", "measured", "both"] | None,
        Parameter(help="Whose seconds: both shows simulated beside measured, op by op. Measured with --profile."),
    ] = None,
    anchor: Annotated[
        list[str] | None,
        Parameter(negative="", help="Files of records: own runs of the same software and accelerator, as evidence."),
    ] = None,
    flags: JobFlags = NO_FLAGS,
    output: Output = DEFAULT,
) -> int:
    """Memory and throughput of one job."""
    from windtunnel.catalog.calibration import with_uncertainty
    from windtunnel.projection.elasticity import elasticity as elasticities
    from windtunnel.projection.explain import explain as explanations
    from windtunnel.projection.project import project as run
    from windtunnel.report.json import elasticity_document, projection_document, warnings_of

    if flags.schedule == ALL_SCHEDULES:
        options = {
            "--explain": explain, "--elasticity": elasticity, "--balance": balance, "--timeline": timeline,
            "--trace": trace, "--profile": profile,
        }  # fmt: skip
        _refuse_beside_all(name for name, given in options.items() if given)
        return _compare_schedules(job, replace(flags, schedule=None), output)
    if profile is not None or mode is not None:
        from windtunnel.cli.measured import project_measured

        _refuse_beside_profile(explain=explain, elasticity=elasticity, timeline=timeline, trace=trace)
        return project_measured(request(job, flags).load(), profile, mode or "measured", output)
    asked = request(job, flags)
    found = _anchor(asked.load(), anchor, output) if anchor else None
    load = asked.load if found is None else _under(asked, found.values)
    load = _balanced(load) if balance else load
    projection = run(load())
    if explain:
        projection = explanations(projection, load)
    projection = with_uncertainty(projection) if found is None else _carried(projection, found)
    slopes = elasticities(projection.job) if elasticity else None
    if trace is not None:
        _write_trace(projection, trace)
        print_note(f"wrote {trace}: open it at ui.perfetto.dev", output)
    print_warnings(warnings_of(projection), output)
    if output.json:
        document = projection_document(projection)
        if slopes is not None:
            document["elasticity"] = elasticity_document(slopes)
        if timeline:
            from windtunnel.report.timeline import timeline_document

            document["timeline"] = timeline_document(projection, _streams(projection))
        print_json(document)
        return 0
    from windtunnel.report.text import elasticity_text, explanation_text, projection_text

    print_screen(projection_text(projection), output)
    if timeline:
        from windtunnel.report.timeline import timeline_text

        print_screen(timeline_text(projection, _streams(projection)), output)
    if explain:
        print_screen(explanation_text(projection), output)
    if slopes is not None:
        print_screen(elasticity_text(slopes), output)
    return 0


def _balanced(load: Callable[..., Job]) -> Callable[..., Job]:
    """Loads the job with the balanced layout of what was asked for, and with changes on top of it."""
    from windtunnel.projection.layouts import balanced
    from windtunnel.schedule.layout import layout_text

    layout = layout_text(balanced(load()))
    return lambda further=None: load({"plan.pipeline.layout": layout, **(further or {})})


def _carried(projection: Projection, found: Anchor) -> Projection:
    from windtunnel.calibration.anchor import anchored

    return anchored(projection, found)


def _anchor(job: Job, files: list[str], output: Output) -> Anchor:
    """What its user's own runs say about a job. Raises MissingError where none of them is comparable."""
    from windtunnel.calibration.anchor import anchor, attributed, comparable_runs
    from windtunnel.catalog.calibration import spreads
    from windtunnel.projection.project import step_time
    from windtunnel.records.own import own_runs

    own = comparable_runs(job, own_runs(files))
    if not own:
        rule = "an anchor is a measured speed of the same framework on the same accelerator"
        given = f"{job.software.framework} on {job.cluster.accelerator.name}"
        raise MissingError(Fault("--anchor", " ".join(files)[:80], rule, f"name records of {given}"))
    found = anchor(job, own, spreads(), step_time)
    terms = ", ".join(f"{name} {before:.3g} → {after:.3g}" for name, before, after in attributed(job, found)[:3])
    print_note(f"anchored on {found.runs} runs: {terms or 'no constant moved'}; the rest × {found.factor:.3f}", output)
    return found


def _under(asked: Request, values: Mapping[str, float]) -> Callable[..., Job]:
    """Loads the job and its variants with other constants."""

    def load(further: Mapping[str, object] | None = None) -> Job:
        job = asked.load(further)
        return replace(job, constants=job.constants.having(values))

    return load


def _refuse_beside_all(options: Iterable[str]) -> None:
    """Raises FormatError for options that look into one projection."""
    rule, remedy = "it looks into one projection, and --schedule all makes many", "name one schedule, or leave it out"
    faults = [Fault(option, "", rule, remedy) for option in options]
    if faults:
        raise FormatError(faults)


def _refuse_beside_profile(**options: object) -> None:
    """Raises FormatError for options that vary or redraw a simulated projection."""
    rule, remedy = "it looks into a simulated projection", "leave out --profile and --mode, or this option"
    faults = [Fault(f"--{option}", "", rule, remedy) for option, given in options.items() if given]
    if faults:
        raise FormatError(faults)


def _compare_schedules(source: str | None, flags: JobFlags, output: Output) -> int:
    """The job under every schedule, against the one it has."""
    from windtunnel.projection.project import project as run
    from windtunnel.projection.schedules import compare_schedules
    from windtunnel.report.schedules import schedules_document, schedules_text

    asked = request(source, flags)
    job = asked.load()
    choices = compare_schedules(job, asked.load)
    print_warnings(job.warnings, output)
    if output.json:
        print_json(schedules_document(choices))
    else:
        print_screen(schedules_text(choices, run(job).step_time), output)
    return 0


def _streams(projection: Projection) -> Iterator[tuple[StreamSpan, ...]]:
    """What every stage's streams do over the projected step."""
    from windtunnel.step.streams import step_streams

    return step_streams(projection.job, projection.costs, projection.timeline)


def _write_trace(projection: Projection, path: str) -> None:
    from windtunnel.catalog.writing import write_whole
    from windtunnel.memory.over_time import memory_over_time
    from windtunnel.report.trace import trace_pieces

    memory = memory_over_time(projection.job, projection.timeline)
    write_whole(path, trace_pieces(projection, _streams(projection), memory))
