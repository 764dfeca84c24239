"""What was assumed: values that nobody gave, the weightiest first."""

from __future__ import annotations

from rich.text import Text

from windtunnel.job.job import Job, Origin
from windtunnel.report.figures import measured

MOST_SHOWN = 8

_WEIGHTY = (
    "software.framework", "software.date", "plan.sharding.strategy", "plan.recompute.policy", "plan.parallel.etp",
    "cluster.scale_up.bandwidth", "cluster.scale_out.bandwidth", "plan.precision.params", "plan.precision.grads",
    "plan.precision.master", "plan.precision.optimizer_state", "plan.moe.routing", "plan.moe.dispatcher",
    "plan.overlap", "software.attention", "software.compiled", "software.cuda_graphs", "plan.loss", "plan.pipeline",
    "plan.context_parallel", "cluster", "plan.optimizer",
)  # fmt: skip
"""Path prefixes in the order in which they move memory or step time most."""

_OFF: tuple[object, ...] = (None, False, 0, 1, "none", (), [], frozenset())
"""Values that say nothing happens."""


def assumed_lines(job: Job) -> list[Text]:
    """At most eight assumptions, one line each, and how many more ``check`` lists."""
    assumed = sorted((entry for entry in job.origin if _is_assumed(entry, job)), key=_weight)
    if not assumed:
        return []
    lines = [Text("Assumed", style="bold"), *[_line(entry) for entry in assumed[:MOST_SHOWN]]]
    if len(assumed) > MOST_SHOWN:
        lines.append(Text(f"  and {len(assumed) - MOST_SHOWN} more: windtunnel check lists them all", style="dim"))
    return lines


def _is_assumed(entry: Origin, job: Job) -> bool:
    idle = entry.path.startswith("plan.moe.") and not job.model.is_moe
    return entry.level != "file" and not idle


def _weight(entry: Origin) -> tuple[bool, int]:
    """A derived value follows from what was given, and a neutral one that is off changes nothing: both come last."""
    rank = next((index for index, prefix in enumerate(_WEIGHTY) if entry.path.startswith(prefix)), len(_WEIGHTY))
    idle = entry.level == "derived" or (entry.level == "neutral" and entry.value in _OFF)
    return idle, rank


def _line(entry: Origin) -> Text:
    value = measured(entry.path, entry.value)
    text = Text.assemble(f"  {entry.path:<37} {value:<14} ", (f"{entry.level}: {entry.why}", "dim"))
    text.truncate(100, overflow="ellipsis")
    return text
