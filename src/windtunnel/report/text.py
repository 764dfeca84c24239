"""One projection on one screen, for a person; at most 100 columns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.text import Text

from windtunnel.projection.result import Assumption, Binding, Knob, Projection
from windtunnel.report.figures import bar, percent, shown, thousands
from windtunnel.report.json import FLOPS_CONVENTION, warnings_of
from windtunnel.report.memory import anchored_lines, memory_table, verdict_line
from windtunnel.report.origin import assumed_lines
from windtunnel.step.parts import COMMUNICATION, NAMES
from windtunnel.units import human_count, human_rate, human_seconds

BAR_WIDTH = 40

_COLOUR = {"compute": "green", "recompute": "yellow", "bubble": "red", "optimizer": "blue"}


def projection_text(projection: Projection) -> RenderableType:
    """Verdict, speed, where the time goes, memory by stage, assumptions and warnings."""
    return Group(
        title(projection),
        Text(),
        verdict_line(projection.memory),
        *anchored_lines(projection.memory),
        *_speed(projection),
        Text(),
        *_time(projection),
        Text(),
        memory_table(projection.memory),
        Text(),
        *assumed_lines(projection.job),
        *warning_lines(warnings_of(projection)),
    )


def title(projection: Projection) -> Text:
    """What is projected: model and cluster on one line, the plan on the next."""
    job = projection.job
    cluster, software, batch = job.cluster, job.software, job.plan.batch
    layout = job.plan.parallel
    degrees = [f"{name} {getattr(layout, name)}" for name in ("tp", "cp", "pp", "ep", "etp", "dp")]
    kept = [text for text in degrees if not text.endswith(" 1")] or ["dp 1"]
    schedule = [projection.schedule_name] if layout.pp > 1 else []
    plan = [*kept, *schedule, job.plan.sharding.strategy, job.plan.precision.compute]
    sizes = f"batch {batch.global_batch_size:,} × {batch.sequence_length:,} by {batch.micro_batch_size}"
    parameters = human_count(projection.parameters.total)
    return Text.assemble(
        (job.model.name, "bold"),
        f" ({parameters} parameters) on {cluster.num_accelerators:,} × {cluster.accelerator.name}, "
        f"{software.framework} {software.date}\n",
        (" · ".join([*plan, sizes]), "dim"),
    )


def warning_lines(warnings: list[str]) -> list[Text]:
    return [Text(f"warning: {warning}", style="yellow") for warning in warnings]


def _speed(projection: Projection) -> list[Text]:
    step = f"{human_seconds(projection.step_time)} a step, {projection.num_microbatches} micro-batches a replica"
    tokens = (
        f"{thousands(projection.tokens_per_second)} tokens/s, "
        f"{thousands(projection.tokens_per_second_per_accelerator)} per accelerator"
    )
    flops = human_rate(projection.model_flops_per_second_per_accelerator, "FLOP/s")
    mfu = f"{percent(projection.mfu)} MFU: {flops} of {human_rate(projection.peak_flops, 'FLOP/s')}"
    return [
        Text.assemble(("Speed   ", "bold"), step),
        *_interval(projection),
        Text(f"        {tokens}"),
        Text(f"        {mfu}, attention counted {FLOPS_CONVENTION.replace('_', ' ')}"),
    ]


def _interval(projection: Projection) -> list[Text]:
    """Where the measured step should lie, and on what evidence."""
    known = projection.uncertainty
    if known is None or known.step_time is None:
        return []
    low, high = (human_seconds(seconds) for seconds in known.step_time)
    evidence = "anchored on own runs" if projection.provenance.anchored else "by published runs of its kind"
    if projection.evidence:
        evidence = "by the spread of the measurements"
    return [Text(f"        {low} to {high} with {100 * known.level:.0f} % confidence, {evidence}")]


def _time(projection: Projection) -> list[Text]:
    parts = {name: getattr(projection.time, name) for name in NAMES}
    total = projection.step_time or 1.0
    lines = [Text(f"Where the {human_seconds(projection.step_time)} go", style="bold")]
    lines += [
        _time_line(name, seconds, seconds / total) for name, seconds in parts.items() if seconds / total >= 0.0005
    ]
    hidden = {group: seconds for group, seconds in projection.hidden_communication.items() if seconds > 0}
    if hidden:
        spelled = ", ".join(f"{group} {human_seconds(seconds)}" for group, seconds in hidden.items())
        lines.append(Text(f"  hidden behind compute: {spelled}", style="dim"))
    return lines


def _time_line(name: str, seconds: float, share: float) -> Text:
    label = f"exposed {name}" if name in COMMUNICATION else name
    colour = _COLOUR.get(name, "magenta" if name in COMMUNICATION else "cyan")
    return Text.assemble(
        f"  {label:<12}{human_seconds(seconds):>9} {percent(share):>8}  ", (bar(share, BAR_WIDTH), colour)
    )


def elasticity_text(elasticity: tuple[tuple[str, float], ...]) -> RenderableType:
    """How many percent the step time moves when a figure moves by one percent."""
    widest = max((len(path) for path, _ in elasticity), default=0)
    lines = [Text(f"  {path:<{widest}}  {value:+.3f}") for path, value in elasticity]
    return Group(Text(), Text("Percent of step time per percent of", style="bold"), *lines)


def explanation_text(projection: Projection) -> RenderableType:
    """What binds on each stage, which knob helps most, and which assumption matters."""
    explanation = projection.explanation
    if explanation is None:
        return Text()
    lines = [Text(), Text("What binds", style="bold")]
    lines += [_binding_line(run) for run in _runs(explanation.binding)]
    lines += [Text("What would help", style="bold")]
    lines += [_knob_line(knob, projection) for knob in explanation.knobs]
    if not explanation.knobs:
        lines.append(Text("  no single change that fits makes the step shorter"))
    if explanation.assumptions:
        lines.append(Text("Assumptions, by what the step would take if they were otherwise", style="bold"))
        lines += [_assumption_line(assumption) for assumption in explanation.assumptions]
    return Group(*lines)


def _assumption_line(assumption: Assumption) -> Text:
    spelled = f"if {assumption.path.removeprefix('plan.')} were {shown(assumption.otherwise)}"
    return Text(f"  {spelled:<52}{100 * assumption.effect:+.1f} %")


def _runs(bindings: Sequence[Binding]) -> list[list[Binding]]:
    """Neighbouring stages that the same term binds."""
    return [list(run) for _, run in groupby(bindings, key=lambda binding: binding.term)]


def _binding_line(run: list[Binding]) -> Text:
    stages = f"stage {run[0].stage}" if len(run) == 1 else f"stages {run[0].stage}–{run[-1].stage}"
    low, high = (percent(pick(binding.share for binding in run)) for pick in (min, max))
    return Text(f"  {stages:<14}{run[0].term:<28}{low if low == high else f'{low} to {high}'}")


def _knob_line(knob: Knob, projection: Projection) -> Text:
    """A knob's step; beside measured seconds, how much of it is simulated still."""
    spelled = ", ".join(f"{path.removeprefix('plan.')} {shown(value)}" for path, value in knob.changes)
    gain = projection.step_time / knob.step_time - 1
    known = f", {percent(knob.simulated)} simulated" if projection.evidence else ""
    return Text.assemble(
        f"  {spelled:<52}{human_seconds(knob.step_time):>9}  ",
        (f"{100 * gain:+.1f} % tokens/s", "green" if gain > 0 else "red"),
        (known, "dim"),
    )
