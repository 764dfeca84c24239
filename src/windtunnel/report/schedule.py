"""A pipeline schedule on its own: the document of ``schedule --json`` and its drawing in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from windtunnel.report.figures import number, percent
from windtunnel.schedule.action import format_action
from windtunnel.step.bubble import bubble_fraction
from windtunnel.step.timeline import Span, Timeline

_COLOUR = {"F": "blue", "B": "green", "W": "yellow", "BW": "green"}
_DIGITS = "0123456789"


def schedule_document(timeline: Timeline, in_flight: Sequence[float], name: str) -> dict[str, Any]:
    """``schedule --json``; the bubble is 1 − busiest rank's work / makespan (the ideal is a rank that never waits)."""
    order = timeline.order
    return {
        "name": name,
        "stages": order.num_stages,
        "microbatches": order.num_microbatches,
        "virtual_stages": order.virtual_stages,
        "makespan": timeline.makespan,
        "bubble_fraction": bubble_fraction(timeline),
        "peak_in_flight": list(in_flight),
        "orders": [[format_action(action) for action in rank] for rank in order.actions],
    }


def schedule_text(document: dict[str, Any], timeline: Timeline, width: int, *, colour: bool = False) -> RenderableType:
    """One row a rank, time to the right; a digit is the last one of the micro-batch.

    Every other chunk of a rank is bold and in lower case. An action one character wide shows its micro-batch where
    colour tells its kind, else its kind.
    """
    chunks = f" of {document['virtual_stages']} chunks" if document["virtual_stages"] > 1 else ""
    header = Text.assemble(
        (document["name"], "bold"),
        f"  {document['stages']} stages{chunks}, {document['microbatches']} micro-batches\n"
        f"makespan {number(document['makespan'])}, bubble {percent(document['bubble_fraction'])}, "
        f"in flight at most {number(max(document['peak_in_flight']))} micro-batches",
    )
    margin = len(str(document["stages"])) + 6
    columns = width - margin - 8
    rows = [
        Text.assemble(
            (f"{rank:>{margin - 2}}  ", "dim"),
            _row(timeline, rank, columns, colour=colour),
            f"  {number(in_flight):>5}",
        )
        for rank, in_flight in enumerate(document["peak_in_flight"])
    ]
    return Group(header, Text(), *rows, *_legend(timeline, margin))


def _legend(timeline: Timeline, margin: int) -> list[Text]:
    legend = Text.assemble(
        ("rank".rjust(margin - 2) + "  ", "dim"), ("F forward ", _COLOUR["F"]), ("B backward ", _COLOUR["B"]),
        ("W weight gradients ", _COLOUR["W"]), ("· waiting; right: peak in flight", "dim"),
    )  # fmt: skip
    notes = []
    if any(len(held) > 1 for held in timeline.order.placement):
        notes.append("lower case: every other chunk of a rank")
    if any(timeline.order.overlapped):
        notes.append("a forward that runs beside the backward after it is drawn before it")
    return [legend, *(Text(" " * margin + note, style="dim") for note in notes)]


def _row(timeline: Timeline, rank: int, columns: int, *, colour: bool) -> Text:
    """Characters sampled at the middle of equal slices of time; the first of an action is its kind, if it has two."""
    spans = [span for span in timeline.spans[rank] if span.end > span.start]
    slices = _columns(timeline, columns)
    chunks = sorted({span.chunk for span in spans})
    row, position, previous = Text(), 0, -1
    for slot in range(slices):
        moment = (slot + 0.5) * timeline.makespan / slices
        while position < len(spans) and spans[position].end <= moment:
            position += 1
        if position == len(spans) or spans[position].start > moment:
            row.append("·", "dim")
            continue
        span, other = spans[position], chunks.index(spans[position].chunk) % 2 == 1
        wide = span.end > moment + timeline.makespan / slices
        named = position != previous and (wide or not colour)
        row.append(_character(span, named=named, other=other), _style(span, other=other))
        previous = position
    return row


def _columns(timeline: Timeline, columns: int) -> int:
    """A whole number of characters per shortest action where that fits, else the full width."""
    lengths = [span.end - span.start for rank in timeline.spans for span in rank if span.end > span.start]
    if not lengths:
        return 1
    units = round(timeline.makespan / min(lengths))
    return units * max(1, min(2, columns // units)) if units <= columns else columns


def _character(span: Span, *, named: bool, other: bool) -> str:
    kind = span.kind[0].lower() if other else span.kind[0]
    return kind if named else _DIGITS[span.microbatch % len(_DIGITS)]


def _style(span: Span, *, other: bool) -> str:
    return f"{_COLOUR[span.kind]}{' bold' if other else ''} reverse"
