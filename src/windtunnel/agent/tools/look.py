"""Tools that look at plans by the model."""

from __future__ import annotations

from typing import Any

from windtunnel.agent import views
from windtunnel.agent.bench import Bench
from windtunnel.projection.choices import Changes
from windtunnel.projection.compare import compare as difference
from windtunnel.projection.explain import explain as explained
from windtunnel.projection.memory import project_memory
from windtunnel.projection.result import Projection
from windtunnel.schedule.job_order import job_order
from windtunnel.search.answer import sensitivity as neighbours
from windtunnel.search.fit import fit
from windtunnel.search.mandate import outside
from windtunnel.search.moves import Moves
from windtunnel.step.parts import NAMES
from windtunnel.step.step import stage_parts

REPAIRS = 4
"""Ways to make a plan fit that are told."""
KNOBS = 8


def evaluate(bench: Bench, *, changes: Changes, **_trial: Any) -> dict[str, Any]:
    """One plan by the model; ``trial`` is carried out by whoever holds the study."""
    answer = bench.project(changes)
    found = views.summary(answer)
    for name, other in (("baseline", bench.baseline), ("best", bench.best)):
        if other is not None and other.outcome.step_time and bench.simulated:
            found[f"step_time_against_{name}"] = views.percent(answer.step_time / other.outcome.step_time - 1)
    if outside(changes, bench.space):
        found["what_if"] = "other hardware or another task: no trial may change these"
    if answer.memory.verdict != "fits":
        found["repairs"] = repairs(bench, answer, changes)
    return found


def repairs(bench: Bench, answer: Projection, changes: Changes) -> list[dict[str, Any]]:
    """The cheapest further changes that make a plan fit, of those that a trial may make."""
    found = fit(answer, lambda more: bench.vary(bench.written({**changes, **more})))
    allowed = [item for item in found if not outside(item.changes, bench.space)]
    return [
        {"changes": item.changes, "step_time_s": views.figure(item.step_time), "peak_gib": views.gib(item.peak_device)}
        for item in allowed[:REPAIRS]
    ]


def memory(bench: Bench, *, changes: Changes) -> dict[str, Any]:
    found = project_memory(bench.job_of(changes))
    stages = [views.stage_bytes(stage) for stage in found.stages]
    answer: dict[str, Any] = views.memory(found) | {"stages": _few(stages, "device_gib")}
    if found.verdict != "fits":
        answer["repairs"] = repairs(bench, bench.project(changes), changes)
    return answer


MOST_STAGES = 16


def _few(stages: list[dict[str, Any]], by: str) -> list[dict[str, Any]]:
    """The fullest stages, in their order, where there are many."""
    kept = sorted(stages, key=lambda stage: -stage[by])[:MOST_STAGES]
    return sorted(kept, key=lambda stage: int(stage["stage"]))


def stages(bench: Bench, *, changes: Changes) -> dict[str, Any]:
    answer = bench.project(changes)
    order, layout = job_order(answer.job), answer.job.plan.pipeline.layout
    found = []
    for rank, held in enumerate(answer.memory.stages):
        own = stage_parts(answer.costs, order, rank)
        layers = [len(layout[index].layers) for index in order.placement[rank]]
        seconds = {name: views.figure(getattr(own, name), 3) for name in NAMES if getattr(own, name)}
        idle = views.figure(max(0.0, answer.step_time - own.total), 3)
        found.append(
            {**views.stage_bytes(held), "layers_per_chunk": layers, "seconds": seconds, "idle_or_bubble_s": idle}
        )
    return {
        "step_time_s": views.figure(answer.step_time),
        "schedule": answer.schedule_name,
        "micro_batches": answer.num_microbatches,
        "busiest_stage": answer.busiest_stage,
        "layers_of_chunks": [len(chunk.layers) for chunk in layout],
        "stages": _few(found, "device_gib"),
    }


def explain(bench: Bench, *, changes: Changes) -> dict[str, Any]:
    plan = bench.written(changes)
    answer = explained(bench.project(changes), lambda more: bench.vary({**plan, **more}))
    assert answer.explanation is not None
    return {
        "step_time_s": views.figure(answer.step_time),
        "binding": [
            {"stage": item.stage, "term": item.term, "share": round(item.share, 3)}
            for item in answer.explanation.binding[:MOST_STAGES]
        ],
        "single_changes_that_help": [
            {"changes": dict(knob.changes), "step_time_s": views.figure(knob.step_time),
             "peak_gib": views.gib(knob.peak_device)}
            for knob in answer.explanation.knobs[:KNOBS]
        ],
        "assumptions": [
            {"path": item.path, "otherwise": item.otherwise, "effect": views.percent(item.effect)}
            for item in answer.explanation.assumptions[:KNOBS]
        ],
    }  # fmt: skip


def compare(bench: Bench, *, first: Changes, second: Changes) -> dict[str, Any]:
    one, other = bench.project(first), bench.project(second)
    (delta,) = difference([one, other])
    return {
        "first": {"step_time_s": views.figure(one.step_time), "memory": views.memory(one.memory)},
        "second": {"step_time_s": views.figure(other.step_time), "memory": views.memory(other.memory)},
        "second_minus_first_s": {name: views.figure(seconds, 4) for name, seconds in delta.terms.items()},
        "step_time": views.percent(other.step_time / one.step_time - 1),
        "peak_gib": views.gib(delta.peak_device),
    }


def sensitivity(bench: Bench, *, changes: Changes) -> dict[str, Any]:
    answer = bench.project(changes)
    own = _standing(bench, changes)
    found = neighbours(answer, own, bench.space, lambda more: bench.vary(bench.written(dict(more))))
    return {
        "step_time_s": views.figure(answer.step_time),
        "neighbours": [
            {"path": item.path, "value": item.value, "memory": item.verdict,
             "step_time": None if item.delta is None else views.percent(item.delta)}
            for item in found
        ],
    }  # fmt: skip


def _standing(bench: Bench, changes: Changes) -> Changes:
    """The plan's value on every axis, so that each has neighbours."""
    moves = Moves(bench.job, bench.space)
    values = ((axis.path, moves.value(changes, axis.path)) for axis in bench.space.axes)
    return {path: value for path, value in values if value is not None} | changes
