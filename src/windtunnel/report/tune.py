"""The answer of a search, as the document of ``tune --json`` and as a screen made from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from windtunnel.projection.result import Projection
from windtunnel.report.figures import differences, percent, shown, signed_percent, thousands
from windtunnel.report.json import projection_document
from windtunnel.report.tables import table
from windtunnel.search.answer import Neighbour, Step
from windtunnel.search.exhaustive import Progress, accelerators_of, pareto
from windtunnel.search.minimum import Infeasible
from windtunnel.units import human_bytes, human_seconds


def answer_document(
    baseline: Projection,
    best: Projection | None,
    progress: Progress,
    seconds: float,
    *,
    accelerators: int | None,
    interrupted: bool,
    steps: Sequence[Step] = (),
    neighbours: Sequence[Neighbour] = (),
    infeasible: Infeasible | None = None,
) -> dict[str, Any]:
    """Everything the search found; ``gain`` is in throughput."""
    batch = baseline.job.plan.batch
    tokens = batch.global_batch_size * batch.sequence_length / baseline.job.cluster.num_accelerators
    return {
        "best": None if best is None else projection_document(best),
        "baseline": projection_document(baseline),
        "gain": None if best is None else baseline.step_time / best.step_time - 1,
        "certificate": "exhaustive" if progress.certified and not interrupted else "none",
        "top": [
            {
                "plan": plan.changes,
                "step_time": plan.step_time,
                "tokens_per_second_per_accelerator": tokens / plan.step_time,
                "peak_device": plan.peak_device,
                "why": f"{signed_percent(baseline.step_time / plan.step_time - 1)} throughput over the baseline",
            }
            for plan in progress.found
        ],
        "enumerated": progress.enumerated,
        "legal": progress.legal,
        "pruned": progress.pruned,
        "evaluated": progress.evaluated,
        "exactly_timed": progress.exactly_timed,
        "seconds": seconds,
        "plans_per_second": progress.evaluated / seconds if seconds else 0.0,
        "attribution": [{"changes": step.changes, "delta": step.delta, "parts": step.parts} for step in steps],
        "pareto": [
            {
                "step_time": time,
                "peak_device": peak,
                "accelerators": accelerators_of(changes, baseline.job.cluster.num_accelerators),
                "plan": changes,
            }
            for time, peak, changes in pareto(progress, baseline.job.cluster.num_accelerators)
        ],
        "sensitivity": [
            {"path": item.path, "value": item.value, "delta": item.delta, "verdict": item.verdict}
            for item in neighbours
        ],
        "minimum_accelerators": accelerators,
        "infeasible": None
        if infeasible is None
        else {
            "constraint": infeasible.constraint,
            "relaxations": [{"changes": changes} for changes in infeasible.relaxations],
        },
        "interrupted": interrupted,
    }


def answer_text(document: Mapping[str, Any], more: Sequence[RenderableType] = ()) -> RenderableType:
    """One screen: the winner against the baseline, where the gain comes from, the runners-up, how sure it is.

    ``more`` comes before the last lines.
    """
    counts = Text(
        f"{document['enumerated']:,} plans, {document['legal']:,} legal, {document['evaluated']:,} fit and scored, "
        f"{document['exactly_timed']:,} timed exactly, {document['seconds']:.1f} s"
    )
    if document["best"] is None:
        return Group(*_lacking(document), *more, counts)
    return Group(
        _headline(document),
        *_steps(document),
        _top(document),
        *_sharpness(document),
        *more,
        counts,
        Text(certificate(document), style="green" if document["certificate"] == "exhaustive" else "yellow"),
    )


def certificate(document: Mapping[str, Any]) -> str:
    """Whether the answer is proven, in a sentence."""
    if document["certificate"] == "exhaustive":
        return "certified: no plan of this space that fits is faster"
    if document["study"] is not None and not document["interrupted"]:
        return "not certified: plans were tried one by one; the exhaustive search looks at all of them"
    reason = "interrupted" if document["interrupted"] else "out of budget"
    return f"not certified: {reason} before the space was exhausted; this is the best so far"


def _headline(document: Mapping[str, Any]) -> RenderableType:
    rows = [
        [
            name,
            human_seconds(document[key]["step_time"]),
            thousands(document[key]["tokens_per_second_per_accelerator"]),
            percent(document[key]["mfu"]),
            human_bytes(document[key]["memory"]["peak_device"]),
            document[key]["memory"]["verdict"],
        ]
        for name, key in (("baseline", "baseline"), ("best", "best"))
    ]
    gain = table(["", "step time", "tokens/s each", "MFU", "peak memory", "verdict"], rows)
    return Group(gain, Text(f"gain {signed_percent(document['gain'])} throughput", style="bold"))


def _steps(document: Mapping[str, Any]) -> list[RenderableType]:
    base = document["baseline"]["step_time"]
    rows = [
        [
            " ".join(f"{_short(path)}={shown(value)}" for path, value in step["changes"].items()),
            signed_percent(step["delta"] / base),
            _mostly(step["parts"], step["delta"], base),
        ]
        for step in document["attribution"]
    ]
    return [table(["from baseline to best", "step time", "mostly"], rows)] if rows else []


def _mostly(parts: Mapping[str, float], delta: float, base: float) -> str:
    """The parts that make a change what it is: up to three, in its direction and beyond a thousandth of the step."""
    ranked = sorted(parts.items(), key=lambda part: part[1] if delta < 0 else -part[1])
    moved = [(name, seconds) for name, seconds in ranked[:3] if seconds * delta > 0 and abs(seconds) > base / 1000]
    return ", ".join(f"{name} {signed_percent(seconds / base)}" for name, seconds in moved)


def _short(path: str) -> str:
    return path.removeprefix("plan.")


def _top(document: Mapping[str, Any]) -> RenderableType:
    best = document["top"][0]["plan"]
    rows = [
        [
            str(rank),
            human_seconds(plan["step_time"]),
            human_bytes(plan["peak_device"]),
            differences(plan["plan"], best if rank > 1 else {})[:64],
        ]
        for rank, plan in enumerate(document["top"], start=1)
    ]
    return table(["", "step time", "peak", "what differs from the first"], rows, left=4)


def _sharpness(document: Mapping[str, Any]) -> list[RenderableType]:
    rows = [
        [
            f"{_short(item['path'])}={shown(item['value'])}",
            "" if item["delta"] is None else signed_percent(item["delta"]),
            item["verdict"] or "illegal",
        ]
        for item in document["sensitivity"]
    ]
    found: list[RenderableType] = [table(["one step away", "step time", "verdict"], rows)] if rows else []
    if document["minimum_accelerators"] is not None:
        found.append(Text(f"fewest accelerators that hold this job: {document['minimum_accelerators']:,}"))
    return found


def _lacking(document: Mapping[str, Any]) -> list[RenderableType]:
    lacking = document["infeasible"] or {"constraint": "nothing was evaluated", "relaxations": []}
    helps = [Text(f"would help: {_spelled(item['changes'])}") for item in lacking["relaxations"]]
    return [Text("nothing fits", style="bold red"), Text(lacking["constraint"]), *helps]


def _spelled(changes: Mapping[str, Any]) -> str:
    return " ".join(f"{path}={shown(value)}" for path, value in changes.items())
