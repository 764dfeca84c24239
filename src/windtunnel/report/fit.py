"""What makes a job fit, and what an out-of-memory message says beside its plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from windtunnel.memory.diagnosis import FRAGMENTS, GRAPHS, OTHERS, OUTSIDE, TENSORS, Diagnosis
from windtunnel.projection.result import Projection
from windtunnel.report.figures import shown, signed_percent
from windtunnel.report.memory import interval_line, verdict_line
from windtunnel.report.plain import plain
from windtunnel.report.tables import table
from windtunnel.search.fit import SAME_DEVICE, Remedy
from windtunnel.units import human_bytes, human_seconds

_ADVICE = {
    TENSORS: "compare the job with what was launched",
    FRAGMENTS: "free, but in pieces too small; try expandable segments",
    OUTSIDE: "communicators, contexts or CUDA graphs",
    GRAPHS: "what a graph captured stays allocated; capture less, or leave room for it",
    OTHERS: "end them, or plan with what they leave",
}


def fit_document(now: Projection, found: Sequence[Remedy], diagnosis: Diagnosis | None) -> dict[str, Any]:
    """``fit --json``; ``error`` only where a message was given."""
    document: dict[str, Any] = {
        "verdict": now.memory.verdict,
        "changes": [
            {
                "changes": plain(item.changes),
                "peak_device": item.peak_device,
                "step_time": item.step_time,
                "price": item.price,
            }
            for item in found
        ],
    }
    if diagnosis is not None:
        document["error"] = {
            "exceeded": diagnosis.exceeded,
            "plan_too_large": diagnosis.hopeless,
            "classes": [{"class": c.name, "planned": c.planned, "found": c.found} for c in diagnosis.classes],
            "requested": diagnosis.error.requested,
            "requested_like": list(diagnosis.requested),
        }
    return document


def fit_text(now: Projection, found: Sequence[Remedy], diagnosis: Diagnosis | None) -> RenderableType:
    """The verdict, the message beside the plan, and the remedies by price."""
    parts: list[RenderableType] = [verdict_line(now.memory), interval_line(now.memory)]
    if diagnosis is not None:
        parts += [Text(), *_diagnosis(diagnosis)]
    beyond = 0.0 if diagnosis is None else diagnosis.beyond
    if now.memory.verdict == "fits" and not beyond:
        return Group(*parts, Text("nothing has to change", style="green"))
    if not found:
        return Group(*parts, Text("no change of this plan, nor 4,096 accelerators, makes it fit", style="bold red"))
    rows = [
        [_spelled(item), human_bytes(item.peak_device), human_seconds(item.step_time), signed_percent(-item.price)]
        for item in found
    ]
    title = "Any one of these makes it fit; throughput is that of one accelerator"
    if beyond:
        title = f"Any one of these leaves room for {human_bytes(beyond)} beyond the plan; throughput of one accelerator"
    return Group(*parts, Text(), table(["change", "peak", "step time", "throughput"], rows, title=title))


def _spelled(item: Remedy) -> str:
    return "\n".join(f"{path.removeprefix('plan.')} = {_value(value)}" for path, value in item.changes.items())


def _value(value: Any) -> str:
    """A recompute policy as a person would say it."""
    if not isinstance(value, dict):
        return shown(value)
    detail = value.get("modules") or value.get("num_layers")
    return str(value.get("policy")) + ("" if detail is None else f" {shown(detail)}")


def _diagnosis(diagnosis: Diagnosis) -> list[RenderableType]:
    wanted = diagnosis.error.requested
    size = human_bytes(wanted) if wanted >= 2**30 else f"{wanted / 2**20:,.0f} MiB"
    asked = Text.assemble(("The message  ", "bold"), f"it asked for {size}")
    if diagnosis.requested:
        asked.append(f": {' or '.join(diagnosis.requested[:2])}")
    rows = [
        [c.name, human_bytes(c.planned), human_bytes(c.found), ("+" if c.over >= 0 else "−") + human_bytes(abs(c.over))]
        for c in diagnosis.classes
    ]
    figures = table(["class", "plan's peak", "at the failure", "difference"], rows)
    return [asked, figures, _judgement(diagnosis), *_other_device(diagnosis)]


def _judgement(diagnosis: Diagnosis) -> Text:
    name = diagnosis.exceeded
    if diagnosis.hopeless:
        need = f"the plan's peak of {human_bytes(diagnosis.planned)} is more than the device has"
        return Text.assemble((need, "bold yellow"), f"; {name} are most of it")
    if name is None:
        return Text("no class exceeded the plan: it failed before its peak, or on a fuller rank", style="yellow")
    return Text.assemble((f"{name} exceeded the plan", "bold yellow"), f": {_ADVICE[name]}")


def _other_device(diagnosis: Diagnosis) -> list[Text]:
    """A device that has other memory than the catalog says."""
    has = diagnosis.error.capacity
    if has is None or abs(has / diagnosis.capacity - 1) <= SAME_DEVICE:
        return []
    return [Text(f"the device has {human_bytes(has)}; the plan counts on {human_bytes(diagnosis.capacity)}")]
