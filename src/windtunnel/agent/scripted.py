"""Policies that play the model, for tests, demonstrations and comparisons: they go by what they are told."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo

Script = Callable[[list[ModelMessage], AgentInfo], ModelResponse]

AT_ONCE = 4
"""Plans the expert proposes in a round."""
WORTH = 0.001
"""Gain, as a share of the step, from which a plan is worth a trial."""
STRUCTURE = {
    "plan.parallel.tp": 2,
    "plan.parallel.pp": 4,
    "plan.parallel.ep": -2,
    "plan.batch.micro_batch_size": 2,
    "plan.pipeline.schedule": 8,
    "plan.pipeline.virtual_stages": 4,
    "plan.recompute": 6,
    "plan.moe.dispatcher": 2,
    "plan.overlap.ep_comm": 2,
}
"""Axes of the first sweep and how many of their values, from the last where negative."""
GRID = ("plan.parallel.", "plan.pipeline.", "plan.batch.")
OFF_THE_GRID: Mapping[str, Mapping[str, Any]] = {
    "experts sized on the device spare the waits for the host": {"plan.moe.sync_free": True},
    "weight gradients fill the waits of the dispatcher": {"plan.overlap.delay_wgrad": True},
}
LAYOUT = "plan.pipeline.layout"
MOST_CHUNKS = 8
"""Chunks up to which single layers are moved between them."""


def expert(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
    """What an engineer with these tools does: look at axes and past, sweep around the best with what trials have shown,
    try what no grid has, and propose a few plans that differ, each with a figure."""
    heard = list(_heard(messages))
    step = sum(isinstance(message, ModelResponse) for message in messages)
    if step == 0:
        return _calls(("axes", {}), ("history", {"show": "best", "top": 3}), ("history", {"show": "gaps"}))
    axes, best = heard[0][1], heard[1][1].get("best", [])
    at = best[0]["changes"] if best else {}
    if step == 1:
        sweeps = [{"axes": sub, "around": at, "top": 30, "corrected": True} for sub in _sub_spaces(axes["axes"])]
        looks = [{"changes": {**at, **more}} for more, _ in _off_the_grid(axes, at)]
        views = [("stages", {"changes": at})] if best else []
        return _calls(*(("sweep", sweep) for sweep in sweeps), *(("evaluate", look) for look in looks), *views)
    if step == 2 and (layouts := _layouts(heard)):
        return _calls(("sweep", {"axes": {LAYOUT: layouts}, "around": at, "corrected": True}))
    return _proposed(_asked(messages), heard, best, at)


def _proposed(prompt: str, heard: Heard, best: Sequence[Mapping[str, Any]], at: Mapping[str, Any]) -> ModelResponse:
    gaps = heard[2][1]
    seconds = float(best[0]["step_time_s"]) if best else inf
    limit = seconds * (1 - WORTH)
    found = [
        (float(plan["at_best_s"]), float(plan["corrected_s"]), plan["changes"], _why(plan["changes"], at))
        for sweep in _named(heard, "sweep")
        for plan in sweep.get("fastest", ())
        if not plan.get("tried") and float(plan["at_best_s"]) < limit
    ]
    stages = _named(heard, "stages")
    for (more, why), look in zip(_off_the_grid(heard[0][1], at), _named(heard, "evaluate"), strict=True):
        if look.get("memory", {}).get("verdict") == "fits" and stages and "step_time_s" in stages[0]:
            expected = seconds * float(look["step_time_s"]) / float(stages[0]["step_time_s"])
            if expected < seconds * (1 - WORTH):
                found.append((expected, expected, {**at, **more}, why))
    chosen: list[dict[str, Any]] = []
    for _, expected, changes, why in sorted(found, key=lambda item: item[0]):
        if len(chosen) < AT_ONCE and all(item["changes"] != changes for item in chosen):
            expect = None if seconds == inf else round(expected / seconds - 1, 4)
            chosen.append({"changes": changes, "hypothesis": why, "expect": expect})
    return _calls(
        ("propose", {"proposals": chosen, "plan": _plan(prompt), "learned": _learned(gaps), "stop": not chosen})
    )


def _layouts(heard: Heard) -> list[str]:
    """The layout of the best plan with one layer moved between any two chunks."""
    found = _named(heard, "stages")
    counts = found[0].get("layers_of_chunks", []) if found else []
    if not 2 <= len(counts) <= MOST_CHUNKS:
        return []
    moved = [
        [count - (index == source) + (index == target) for index, count in enumerate(counts)]
        for source in range(len(counts))
        for target in range(len(counts))
        if source != target and counts[source] > 1
    ]
    return ["E" + "|".join(f"t*{count}" for count in layers) + "L" for layers in moved]


def _plan(prompt: str) -> str:
    found = re.match(r"Round (\d+)", prompt)
    return f"round {found[1] if found else '?'}: what the sweeps rank first and no trial had"


def _learned(gaps: Mapping[str, Any]) -> str:
    """The largest effect that trials have shown beyond the model."""
    rows = [row for row in gaps.get("gaps", ()) if row["trials"] >= 2 and abs(float(row["effect"].rstrip(" %"))) >= 1]
    return f"{rows[0]['path']} = {rows[0]['value']} is {rows[0]['effect']} beyond the model" if rows else ""


BECAUSE = {
    "schedule": "the schedule {} leaves less bubble",
    "virtual_stages": "{} chunks a stage shorten fill and drain",
    "layout": "a layer moved evens out what the stages take",
    "pp": "{} stages: fewer hops and less bubble, or more room",
    "tp": "tp {} trades collectives for memory",
    "ep": "ep {} spreads the experts",
    "micro_batch_size": "micro-batch {} trades bubble for larger products",
    "recompute": "recompute {}: memory and time in another proportion",
    "dispatcher": "the dispatcher {} sends tokens another way",
    "ep_comm": "expert traffic beside compute: {}",
    "p2p": "hops beside compute: {}",
    "tp_comm": "tensor traffic beside compute: {}",
    "grad_reduce": "gradient reduction beside the backward: {}",
    "param_gather": "gathers beside the forward: {}",
    "strategy": "optimizer state by {}",
    "optimizer": "optimizer state on {}",
}
"""Reasons by the last word of a path."""


def _why(changes: Mapping[str, Any], at: Mapping[str, Any]) -> str:
    """Reasons for what is new in a plan, those of structure first."""
    moved = {path.rpartition(".")[2]: value for path, value in changes.items() if at.get(path) != value}
    words = [because.format(_spelled(moved[name])) for name, because in BECAUSE.items() if name in moved]
    return "; ".join(words[:3]) or "the sweep ranks it first"


def _spelled(value: Any) -> str:
    return " ".join(str(item) for item in value.values()) if isinstance(value, Mapping) else str(value)


def _sub_spaces(axes: Mapping[str, list[Any]]) -> Iterator[dict[str, list[Any]]]:
    """Structure first, then every switch around the best plan."""
    yield {path: values[:count] if (count := STRUCTURE[path]) > 0 else values[count:]
           for path, values in axes.items() if path in STRUCTURE}  # fmt: skip
    switches = {path: values for path, values in axes.items() if not path.startswith(GRID)}
    if switches:
        yield switches
    depth = {path: values for path, values in axes.items() if path.startswith("plan.pipeline.")}
    if depth:
        yield depth


def _off_the_grid(axes: Mapping[str, Any], at: Mapping[str, Any]) -> list[tuple[dict[str, Any], str]]:
    """Moves on paths that have no axis, where they say something new."""
    open_paths = set(axes.get("also_open", ()))
    return [
        (dict(more), why) for why, more in OFF_THE_GRID.items() if set(more) <= open_paths and not set(more) & set(at)
    ]


Heard = Sequence[tuple[str, dict[str, Any]]]


def _named(heard: Heard, tool: str) -> list[dict[str, Any]]:
    return [answer for name, answer in heard if name == tool]


def _heard(messages: Sequence[ModelMessage]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Answers of tools with the tool's name, in order."""
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolReturnPart):
                content: Any = part.content
                yield part.tool_name, json.loads(content) if isinstance(content, str) else dict(content)


def _asked(messages: Sequence[ModelMessage]) -> str:
    prompts = [str(part.content) for message in messages for part in message.parts if isinstance(part, UserPromptPart)]
    return prompts[0] if prompts else ""


def _calls(*calls: tuple[str, Mapping[str, Any]]) -> ModelResponse:
    return ModelResponse(parts=[ToolCallPart(name, dict(given)) for name, given in calls])


SCRIPTS: Mapping[str, Script] = {"expert": expert}
"""What ``--llm scripted:NAME`` knows."""
