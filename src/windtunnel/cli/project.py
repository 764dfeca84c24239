"""``windtunnel project``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from windtunnel.cli.flags import ALL_SCHEDULES, NO_FLAGS, JobFlags, JobSource, request
from windtunnel.cli.output import DEFAULT, Output, print_json, print_note, print_screen, print_warnings, switch
from windtunnel.errors import Fault, FormatError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from windtunnel.calibration.anchor import Anchor
    from windtunnel.cli.measured import Simulated
    from windtunnel.cost.source import CostSource
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
    from windtunnel.cli.evidence import anchor_of
    from windtunnel.cli.measured import pricing
    from windtunnel.projection.explain import explain as explanations
    from windtunnel.report.json import elasticity_document, projection_document, warnings_of

    if flags.schedule == ALL_SCHEDULES:
        options = {
            "--explain": explain, "--elasticity": elasticity, "--balance": balance, "--timeline": timeline,
            "--trace": trace, "--profile": profile,
        }  # fmt: skip
        _refuse_beside_all(name for name, given in options.items() if given)
        return _compare_schedules(job, replace(flags, schedule=None), output)
    prices = pricing(profile, mode, anchored=bool(anchor))
    asked = request(job, flags)
    found = anchor_of(asked.load(), anchor, output) if anchor else None
    load = asked.load if found is None else replace(asked, constants=found.values).load
    load = _balanced(load, prices) if balance else load
    real = load()
    projection, source = prices.priced(real)
    if explain:
        projection = explanations(projection, load, prices.run, source)
    projection = prices.certain(projection, source) if found is None else _carried(projection, found)
    slopes = prices.slopes(projection, source) if elasticity else None
    if trace is not None:
        _write_trace(projection, source, trace)
        print_note(f"wrote {trace}: open it at ui.perfetto.dev", output)
    print_warnings(warnings_of(projection), output)
    if output.json:
        document = projection_document(projection) | prices.document(real, projection, source)
        if slopes is not None:
            document["elasticity"] = elasticity_document(slopes)
        if timeline:
            from windtunnel.report.timeline import timeline_document

            document["timeline"] = timeline_document(projection, _streams(projection))
        print_json(document)
        return 0
    from windtunnel.report.text import elasticity_text, explanation_text, projection_text

    for screen in (projection_text(projection), *prices.screens(real, projection, source)):
        print_screen(screen, output)
    if timeline:
        from windtunnel.report.timeline import timeline_text

        print_screen(timeline_text(projection, _streams(projection)), output)
    if explain:
        print_screen(explanation_text(projection), output)
    if slopes is not None:
        print_screen(elasticity_text(slopes), output)
    return 0


def _balanced(load: Callable[..., Job], prices: Simulated) -> Callable[..., Job]:
    """Loads the job with the balanced layout of what was asked for, and with changes on top of it."""
    from windtunnel.projection.layouts import balanced
    from windtunnel.schedule.layout import layout_text

    projection, source = prices.priced(load())
    layout = layout_text(balanced(projection.job, source))
    return lambda further=None: load({"plan.pipeline.layout": layout, **(further or {})})


def _carried(projection: Projection, found: Anchor) -> Projection:
    from windtunnel.calibration.anchor import anchored

    return anchored(projection, found)


def _refuse_beside_all(options: Iterable[str]) -> None:
    """Raises FormatError for options that look into one projection."""
    rule, remedy = "it looks into one projection, and --schedule all makes many", "name one schedule, or leave it out"
    faults = [Fault(option, "", rule, remedy) for option in options]
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


def _write_trace(projection: Projection, source: CostSource | None, path: str) -> None:
    from windtunnel.catalog.writing import write_whole
    from windtunnel.memory.over_time import memory_over_time
    from windtunnel.projection.evidence import of_chunks
    from windtunnel.report.trace import trace_pieces

    memory = memory_over_time(projection.job, projection.timeline)
    evidence = () if source is None else of_chunks(projection.job, source)
    write_whole(path, trace_pieces(projection, _streams(projection), memory, evidence))
