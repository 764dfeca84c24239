"""What was assumed: values that nobody gave, the weightiest first."""

from __future__ import annotations

from collections.abc import Iterable

from rich.text import Text

from windtunnel.job.job import Origin
from windtunnel.report.figures import shown

MOST_SHOWN = 8

_WEIGHTY = (
    "software.framework", "software.date", "plan.sharding.strategy", "plan.precision", "cluster.scale_out",
    "cluster.scale_up", "plan.recompute", "plan.overlap", "plan.moe", "software.attention", "software.compiled",
    "software.cuda_graphs", "plan.pipeline", "plan.parallel", "plan.loss",
)  # fmt: skip
"""Path prefixes in the order in which they move memory or step time most."""

_LEVELS = {"software": 0, "neutral": 1, "derived": 2, "file": 3}


def assumed_lines(origin: Iterable[Origin]) -> list[Text]:
    """At most eight assumptions, one line each, and how many more ``check`` lists."""
    assumed = sorted((entry for entry in origin if entry.level != "file"), key=_weight)
    if not assumed:
        return []
    lines = [Text("Assumed", style="bold"), *[_line(entry) for entry in assumed[:MOST_SHOWN]]]
    if len(assumed) > MOST_SHOWN:
        lines.append(Text(f"  and {len(assumed) - MOST_SHOWN} more: windtunnel check lists them all", style="dim"))
    return lines


def _weight(entry: Origin) -> tuple[int, int]:
    rank = next((index for index, prefix in enumerate(_WEIGHTY) if entry.path.startswith(prefix)), len(_WEIGHTY))
    # A derived degree follows from what was given; it is news only after the real assumptions.
    return (rank + len(_WEIGHTY) if entry.level == "derived" else rank, _LEVELS[entry.level])


def _line(entry: Origin) -> Text:
    text = Text.assemble(f"  {entry.path:<34} {shown(entry.value):<20} ", (f"{entry.level}: {entry.why}", "dim"))
    text.truncate(98, overflow="ellipsis")
    return text
