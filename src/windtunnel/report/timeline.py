"""The shape of a step and its memory as text: a row a stage, time to the right; at most 100 columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from windtunnel.memory.over_time import Alive, Point
from windtunnel.projection.result import Projection
from windtunnel.report.figures import number
from windtunnel.step.streams import COMPUTE, GATHER, OPTIMIZER, REDUCE, STRAGGLERS, StreamSpan
from windtunnel.units import human_bytes, human_seconds

COLUMNS = 78
MOST_ROWS = 32
HEIGHT = 14
IDLE = "·"

_LETTERS = {
    "forward": "F", "recompute": "R", "backward": "B", "weight gradients": "W", "optimizer": "O",
    "optimizer offload": "O", STRAGGLERS: "S",
}  # fmt: skip
_STYLES = {
    "F": "blue reverse", "R": "magenta reverse", "B": "green reverse", "W": "yellow reverse", "D": "red reverse",
    "O": "cyan reverse", "S": "dim reverse", IDLE: "dim",
}  # fmt: skip
_MEANING = {
    "F": "forward", "R": "recompute", "B": "backward", "W": "weight gradients", "D": "data-parallel traffic, exposed",
    "O": "optimizer", "S": "stragglers", IDLE: "waiting",
}  # fmt: skip
_EIGHTHS = " ▁▂▃▄▅▆▇█"


def timeline_text(projection: Projection, streams: Iterable[Sequence[StreamSpan]]) -> RenderableType:
    """One row a stage (a sample of them where there are more than 32), its peak memory to the right, a legend."""
    shown = _sampled(len(projection.timeline.spans))
    margin = len("stage ") + len(str(shown[-1]))
    peaks = projection.memory.stages
    seen: set[str] = set()
    rows = [Text("One step", style="bold") + Text("; right: peak memory of the stage", style="dim")]
    for stage, spans in enumerate(streams):
        if stage in shown:
            letters = _row(spans, projection.step_time)
            seen |= set(letters)
            row = Text.assemble((f"{stage:>{margin}} ", "dim"))
            for letter in letters:
                row.append(letter, _STYLES[letter])
            rows.append(row + Text(f" {human_bytes(peaks[stage].device):>10}"))
    rows.append(Text("stage".rjust(margin) + " " + _axis(projection.step_time), style="dim"))
    return Group(Text(), *rows, *_legend(seen, len(projection.timeline.spans) - len(shown)))


def timeline_document(projection: Projection, streams: Iterable[Sequence[StreamSpan]]) -> list[dict[str, Any]]:
    """``project --timeline --json``: the spans of every stage's streams, in seconds."""
    return [
        {"stage": stage, "rank": projection.memory.stages[stage].rank, "spans": [_span(span) for span in spans]}
        for stage, spans in enumerate(streams)
    ]


def memory_timeline_text(projection: Projection, points: Sequence[Point], alive: Alive) -> RenderableType:
    """Allocated bytes of the worst stage over the step, what is static shaded, and what is alive at the peak."""
    peak = max(point.allocated for point in points)
    static = alive.weights + alive.gradients + alive.master + alive.moments
    levels = _highest(points, projection.step_time)
    margin = len("999.9 GiB")
    title = f"Allocated memory of stage {projection.memory.peak.stage}"
    lines = [
        Text.assemble(
            (title, "bold"), ("; ░ weights, gradients, optimizer state (moments from the second step on)", "dim")
        )
    ]
    for row in range(HEIGHT, 0, -1):
        label = human_bytes(peak * row / HEIGHT) if row in (HEIGHT, HEIGHT // 2) else ""
        line = Text(f"{label:>{margin}} ", style="dim")
        for level in levels:
            line.append(*_cell(level / peak * HEIGHT - row + 1, static=(row - 0.5) * peak / HEIGHT < static))
        lines.append(line)
    column = min(COLUMNS - 1, int(alive.time / projection.step_time * COLUMNS))
    lines.append(Text(" " * (margin + 1 + column) + "▲", style="bold red"))
    lines.append(Text(" " * (margin + 1) + _axis(projection.step_time), style="dim"))
    return Group(Text(), *lines, _alive_text(alive))


def memory_timeline_document(points: Sequence[Sequence[Point]], alive: Sequence[Alive]) -> list[dict[str, Any]]:
    """``memory --timeline --json``: per stage the step function (seconds, bytes) and what is alive at its peak."""
    return [
        {"stage": stage, "points": [list(point) for point in line], "peak": {**_classes(held), "time": held.time}}
        for stage, (line, held) in enumerate(zip(points, alive, strict=True))
    ]


def _span(span: StreamSpan) -> dict[str, Any]:
    return {
        "stream": span.stream, "name": span.name, "start": span.start, "end": span.end,
        "microbatch": span.microbatch, "chunk": span.chunk,
    }  # fmt: skip


def _sampled(count: int) -> list[int]:
    """All stages, or 32 spread evenly from the first to the last."""
    if count <= MOST_ROWS:
        return list(range(count))
    return [round(row * (count - 1) / (MOST_ROWS - 1)) for row in range(MOST_ROWS)]


def _row(spans: Iterable[StreamSpan], step_time: float) -> str:
    """A letter a column: of what runs there, the one that the columns so far have shown too little of."""
    if step_time <= 0:
        return IDLE * COLUMNS
    width = step_time / COLUMNS
    shares: list[dict[str, float]] = [{} for _ in range(COLUMNS)]
    for span in spans:
        letter = _letter(span)
        if letter is not None:
            for column, seconds in _spread(span.start, span.end, width):
                shares[column][letter] = shares[column].get(letter, 0.0) + seconds
    owed: dict[str, float] = {}
    row = []
    for share in shares:
        waiting = width - sum(share.values())
        if waiting > 1e-9 * width:
            share[IDLE] = waiting
        for letter, seconds in share.items():
            owed[letter] = owed.get(letter, 0.0) + seconds
        chosen = max(share, key=owed.__getitem__)
        owed[chosen] -= width
        row.append(chosen)
    return "".join(row)


def _letter(span: StreamSpan) -> str | None:
    """Letter of what occupies a rank; traffic beside compute does not."""
    if span.stream in (REDUCE, GATHER):
        return "D" if span.exposed else None
    return _LETTERS[span.name] if span.stream in (COMPUTE, OPTIMIZER) else None


def _spread(start: float, end: float, width: float) -> Iterator[tuple[int, float]]:
    """Columns that a span touches, with its seconds in each."""
    for column in range(int(start / width), min(COLUMNS, int(end / width) + 1)):
        seconds = min(end, (column + 1) * width) - max(start, column * width)
        if seconds > 0:
            yield column, seconds


def _axis(step_time: float) -> str:
    """Seconds under the columns: none, quarters, all."""
    line = [" "] * COLUMNS
    for quarter in range(5):
        text = human_seconds(step_time * quarter / 4) if quarter else "0"
        middle = round(quarter / 4 * COLUMNS)
        start = min(max(0, middle - (len(text) // 2 if quarter else 0)), COLUMNS - len(text))
        line[start : start + len(text)] = text
    return "".join(line)


def _legend(seen: set[str], hidden: int) -> list[Text]:
    words = [(letter, meaning) for letter, meaning in _MEANING.items() if letter in seen]
    legend = Text("  ")
    for letter, meaning in words:
        legend.append(letter, _STYLES[letter])
        legend.append(f" {meaning}  ", "dim")
    return [legend] if not hidden else [legend, Text(f"  {hidden} stages between these are not shown", style="dim")]


def _highest(points: Sequence[Point], step_time: float) -> list[float]:
    """The most bytes in each column's slice of time."""
    width = step_time / COLUMNS
    levels = [0.0] * COLUMNS
    ends = [*(point.time for point in points[1:]), step_time]
    for (time, allocated), end in zip(points, ends, strict=True):
        first = min(COLUMNS - 1, int(time / width))
        last = min(COLUMNS - 1, max(first, int(end / width - 1e-9)))
        for column in range(first, last + 1):
            levels[column] = max(levels[column], allocated)
    return levels


def _cell(filled: float, *, static: bool) -> tuple[str, str]:
    """A block filled to an eighth, or a shaded one where a whole row is static state."""
    if static and filled >= 1:
        return "░", "dim"
    return _EIGHTHS[round(min(max(filled, 0.0), 1.0) * 8)], "green"


def _alive_text(alive: Alive) -> Text:
    classes = sorted(_classes(alive).items(), key=lambda item: -item[1])
    spelled = ", ".join(f"{name} {size / 2**30:.2f}" for name, size in classes if size > 0)
    return Text.assemble(
        ("▲ peak ", "bold red"),
        f"{human_bytes(alive.allocated)} after {human_seconds(alive.time)}, in {alive.moment.replace('_', ' ')}, "
        f"with {number(alive.in_flight)} micro-batches in flight\n",
        (f"  GiB: {spelled}", "dim"),
    )


def _classes(alive: Alive) -> dict[str, float]:
    names = ("weights", "gradients", "master", "moments", "activations", "logits", "buffers", "dispatcher")
    return {name: getattr(alive, name) for name in names}
