"""Memory on a screen: the verdict, and each stage at its own peak moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from windtunnel.memory.breakdown import MemoryBreakdown
from windtunnel.memory.interval import LEVEL
from windtunnel.memory.tensors import TensorKind
from windtunnel.projection.result import Memory, Projection
from windtunnel.report.figures import gib, number, percent, thousands
from windtunnel.report.json import warnings_of
from windtunnel.report.origin import assumed_lines
from windtunnel.report.tables import table
from windtunnel.units import human_bytes, human_count

_VERDICT = {"fits": ("FITS", "bold green"), "borderline": ("BORDERLINE", "bold yellow"), "oom": ("OOM", "bold red")}
_HEADERS = (
    "stage", "moment", "flight", "weights", "grads", "optim", "activ", "logits", "other", "reserved", "device",
)  # fmt: skip
MOST_ROWS = 16
"""Longer pipelines show their ends and their peak."""
LEAST = 0.001
"""Share of the allocated bytes from which on a kind of tensor has a row of its own."""


def memory_text(projection: Projection, largest: Mapping[str, int | None]) -> RenderableType:
    """The memory half of a projection; ``largest`` are the greatest values that still fit, if asked for."""
    parameters = projection.parameters
    return Group(
        Text.assemble((projection.job.model.name, "bold"), f", {human_count(parameters.total)} parameters"),
        verdict_line(projection.memory),
        interval_line(projection.memory),
        *anchored_lines(projection.memory),
        memory_table(projection.memory),
        *[_largest_line(name, value) for name, value in largest.items()],
        Text(),
        *assumed_lines(projection.job),
        *[Text(f"warning: {warning}", style="yellow") for warning in warnings_of(projection)],
    )


def verdict_line(memory: Memory) -> Text:
    """The answer first: does it fit, where is the peak, what is left."""
    word, style = _VERDICT[memory.verdict]
    peak = memory.peak
    room = (
        f"{human_bytes(memory.headroom)} headroom" if memory.headroom >= 0 else f"{human_bytes(-memory.headroom)} short"
    )
    return Text.assemble(
        ("Memory  ", "bold"), (word, style),
        f"  {human_bytes(peak.device)} of {human_bytes(memory.capacity)} ({percent(peak.device / memory.capacity)}) "
        f"on stage {peak.stage} in {peak.moment.replace('_', ' ')}, {room}",
    )  # fmt: skip


def interval_line(memory: Memory) -> Text:
    """The first of the ranks that hold most, and where four runs in five end."""
    low, high = memory.interval
    level = f"{round(100 * LEVEL)} % of published runs like it"
    return Text(f"        rank {memory.peak.rank}; {level}: {human_bytes(low)} to {human_bytes(high)}", style="dim")


def anchored_lines(memory: Memory) -> list[Text]:
    """What the peaks of measured pilots say: what of them is explained, both residuals, and the target with them."""
    found = memory.anchored
    if found is None:
        return []
    word, style = _VERDICT[found.verdict]
    pilots = [
        f"        {pilot.layers} layers, MiB: {_mib(pilot.allocated)} allocated, {_mib(pilot.explained)} explained, "
        f"{_mib(pilot.live_excess, '+')} alive beyond, {_mib(pilot.framework_overhead, '+')} held beyond"
        for pilot in found.pilots
    ]
    return [
        Text.assemble(
            ("Anchored", "bold"), " ", (word, style),
            f"  {human_bytes(found.point)} on stage {found.stage} with the residuals of measured pilots, "
            f"at most {human_bytes(found.upper)}",
        ),
        *[Text(line, style="dim") for line in pilots],
    ]  # fmt: skip


def _mib(size: float, sign: str = "") -> str:
    return f"{size / 2**20:{sign},.0f}"


def memory_table(memory: Memory) -> RenderableType:
    """GiB by class; equal neighbours share a row, and so do the middle stages of a long pipeline."""
    title = "Memory of a rank at its peak, GiB"
    if memory.host > 0:
        title += f" (and {human_bytes(memory.host)} on the host)"
    return table(_HEADERS, _rows(memory), left=2, title=title)


def tensors_text(peak: MemoryBreakdown, kinds: Sequence[TensorKind]) -> RenderableType:
    """What is alive at the peak by kind of tensor, largest first, and the recompute modules that would spare it."""
    title = f"Alive on stage {peak.stage} in {peak.moment.replace('_', ' ')}, {human_bytes(peak.allocated)} allocated"
    shown = [kind for kind in kinds if abs(kind.bytes) >= LEAST * peak.allocated]
    rest = sum(kind.bytes for kind in kinds) - sum(kind.bytes for kind in shown)
    if len(shown) < len(kinds):
        shown.append(TensorKind(f"{len(kinds) - len(shown)} smaller", "", rest))
    rows = [
        [
            kind.name.replace("_", " "), kind.of, ", ".join(kind.dropped_by) or "·",
            gib(kind.bytes), percent(kind.bytes / peak.allocated),
        ]
        for kind in shown
    ]  # fmt: skip
    headers = ("tensors", "class", "spared by recompute of", "GiB", "share")
    return Group(Text(), table(headers, rows, left=3, title=title))


def _rows(memory: Memory) -> list[list[str]]:
    merged = _merge_equal([(stage.stage, stage.stage, _cells(stage)) for stage in memory.stages])
    kept = _ends_and_peak(merged, memory.peak.stage)
    return [[_span(first, last), *cells] for first, last, cells in kept]


def _cells(stage: MemoryBreakdown) -> list[str]:
    classes = (
        stage.weights, stage.gradients, stage.master + stage.moments, stage.activations, stage.logits,
        stage.buffers + stage.dispatcher, stage.reserved, stage.device,
    )  # fmt: skip
    return [stage.moment.removeprefix("gradient_"), number(stage.in_flight), *map(gib, classes)]


def _merge_equal(rows: Sequence[tuple[int, int, list[str]]]) -> list[tuple[int, int, list[str]]]:
    merged: list[tuple[int, int, list[str]]] = []
    for first, last, cells in rows:
        if merged and merged[-1][2] == cells:
            merged[-1] = (merged[-1][0], last, cells)
        else:
            merged.append((first, last, cells))
    return merged


def _ends_and_peak(rows: list[tuple[int, int, list[str]]], peak: int) -> list[tuple[int, int, list[str]]]:
    if len(rows) <= MOST_ROWS:
        return rows
    ends = {*range(4), *range(len(rows) - 4, len(rows))}
    kept: list[tuple[int, int, list[str]]] = []
    for index, row in enumerate(rows):
        if index in ends or row[0] <= peak <= row[1]:
            kept.append(row)
        elif kept[-1][2]:
            kept.append((row[0], row[1], []))
        else:
            kept[-1] = (kept[-1][0], row[1], [])
    return [(first, last, cells or ["…"]) for first, last, cells in kept]


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}–{last}"


def _largest_line(name: str, value: int | None) -> Text:
    answer = "none fits" if value is None else thousands(value) if value >= 100 else str(value)
    return Text.assemble((f"largest {name.replace('_', ' ')} that fits: ", "bold"), answer)
