"""The answer of a search as blocks of a report, from the document of ``tune --json``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from windtunnel.report.blocks import Block, Heading, Items, Paragraph, Table
from windtunnel.report.figures import differences, number, percent, shown, signed_percent, thousands
from windtunnel.report.study import surroundings
from windtunnel.report.tune import certificate
from windtunnel.units import human_bytes, human_seconds


def answer_blocks(document: Mapping[str, Any]) -> Iterator[Block]:
    """Best plan, where the gain comes from, what else there is, how sure it is; or what is lacking."""
    yield Heading("The answer")
    if document["best"] is None:
        lacking = document["infeasible"] or {"constraint": "nothing was evaluated", "relaxations": []}
        yield Paragraph(f"Nothing fits: {lacking['constraint']}.")
        if lacking["relaxations"]:
            yield Items([f"would help: {_spelled(item['changes'])}" for item in lacking["relaxations"]])
        return
    yield Table(head=["", "step time", "tokens/s each", "MFU", "peak memory", "verdict"], rows=_compared(document))
    yield Items(list(_said(document)))
    yield Heading("The plan")
    yield Table(head=["job path", "value"], rows=_plan(document), left=2)
    yield from _steps(document)
    yield from _others(document)


def _compared(document: Mapping[str, Any]) -> list[list[str]]:
    return [
        [
            name,
            human_seconds(found["step_time"]),
            thousands(found["tokens_per_second_per_accelerator"]),
            percent(found["mfu"]),
            human_bytes(found["memory"]["peak_device"]),
            found["memory"]["verdict"],
        ]
        for name, found in (("baseline", document["baseline"]), ("best", document["best"]))
    ]


def _said(document: Mapping[str, Any]) -> Iterator[str]:
    study = document["study"]
    yield f"gain {signed_percent(document['gain'])} throughput over the baseline, by the projection"
    if study is not None and study["best"] is not None:
        best = study["best"]
        yield f"found by {best['proposer']} in trial {best['number']}: {best['reason']}"
        if best["step_time"] is not None:
            yield f"{study['oracle']} says {human_seconds(best['step_time'])} a step"
    yield certificate(document)
    yield from surroundings(document)
    if document["minimum_accelerators"] is not None:
        yield f"fewest accelerators that hold this job: {document['minimum_accelerators']:,}"


def _plan(document: Mapping[str, Any]) -> list[list[str]]:
    plan = document["top"][0]["plan"]
    return [[path, shown(value)] for path, value in plan.items()] or [["", "as the job has it"]]


def _steps(document: Mapping[str, Any]) -> Iterator[Block]:
    if not document["attribution"]:
        return
    base = document["baseline"]["step_time"]
    rows = [
        [
            _spelled(step["changes"]),
            human_seconds(abs(step["delta"])) + (" less" if step["delta"] < 0 else " more"),
            signed_percent(step["delta"] / base),
            _parts(step["parts"], base),
        ]
        for step in document["attribution"]
    ]
    yield Heading("From the baseline to the best plan")
    yield Paragraph("The most helpful change first, each on top of those before it; they sum to the difference.")
    yield Table(head=["change", "step time", "of the baseline", "by part"], rows=rows)


def _parts(parts: Mapping[str, float], base: float) -> str:
    """Parts of the step that move by a thousandth of it or more, largest first."""
    moved = sorted((item for item in parts.items() if abs(item[1]) >= base / 1000), key=lambda item: -abs(item[1]))
    return ", ".join(f"{name} {signed_percent(seconds / base)}" for name, seconds in moved)


def _others(document: Mapping[str, Any]) -> Iterator[Block]:
    best = document["top"][0]
    rows = [
        [
            str(rank),
            differences(plan["plan"], best["plan"]),
            human_seconds(plan["step_time"]),
            signed_percent(plan["step_time"] / best["step_time"] - 1),
            human_bytes(plan["peak_device"]),
        ]
        for rank, plan in enumerate(document["top"][1:], start=2)
    ]
    if rows:
        yield Heading("Runners-up")
        yield Table(head=["", "what differs from the best", "step time", "slower", "peak"], rows=rows, left=2)
    objective = document["objective"]
    if len(objective["front"]) > 1:
        rows = [
            [_spelled(item["plan"]), *("" if value is None else number(value) for value in item["values"])]
            for item in objective["front"]
        ]
        named = [f"{name}, {unit}" for name, unit in zip(objective["names"], objective["units"], strict=True)]
        yield Heading("The front")
        yield Paragraph("Plans that no other one equals or beats in every objective.")
        yield Table(head=["plan", *named], rows=rows)
    elif len(document["pareto"]) > 1:
        yield from _traded(document)
    if document["sensitivity"]:
        rows = [
            [
                f"{item['path']}={shown(item['value'])}",
                "" if item["delta"] is None else signed_percent(item["delta"]),
                item["verdict"] or "illegal",
            ]
            for item in document["sensitivity"]
        ]
        yield Heading("One step away")
        yield Table(head=["change", "step time", "verdict"], rows=rows)


POINTS = 20
"""Of a front, evenly spread over it."""


def _traded(document: Mapping[str, Any]) -> Iterator[Block]:
    """Time against memory and accelerators."""
    every = document["pareto"]
    count = min(POINTS, len(every))
    some = [every[round(k * (len(every) - 1) / (count - 1))] for k in range(count)]
    best = document["top"][0]["plan"]
    rows = [
        [
            differences(item["plan"], best),
            human_seconds(item["step_time"]),
            human_bytes(item["peak_device"]),
            f"{item['accelerators']:,}",
        ]
        for item in some
    ]
    yield Heading("The front")
    yield Paragraph(f"{len(every):,} plans that no other one equals or beats in time, memory and accelerators.")
    yield Table(head=["what differs from the best", "step time", "peak", "accelerators"], rows=rows, folded="the front")


def _spelled(changes: Mapping[str, Any]) -> str:
    return ", ".join(f"{path.removeprefix('plan.')}={shown(value)}" for path, value in changes.items())
