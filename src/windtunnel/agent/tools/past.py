"""Tools that look at the study: its axes, what was tried, and notes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import inf
from typing import Any

from windtunnel.agent import views
from windtunnel.agent.bench import Bench
from windtunnel.agent.gaps import gaps
from windtunnel.agent.words import clean
from windtunnel.search.mandate import outside
from windtunnel.search.moves import Moves, own_value
from windtunnel.search.objective import front
from windtunnel.search.trial import FREE, Trial

OPEN = (
    "plan.pipeline.layout",
    "plan.pipeline.first_stage_layers",
    "plan.pipeline.last_stage_layers",
    "plan.pipeline.layers_per_stage",
    "plan.pipeline.microbatch_group_size",
    "plan.pipeline.orders",
    "plan.recompute",
    "plan.overlap.delay_wgrad",
    "plan.moe.sync_free",
    "plan.moe.permute_fusion",
    "plan.context_parallel.kind",
    "plan.context_parallel.ulysses_size",
    "plan.offload.modules",
    "plan.offload.activations",
    "plan.loss.implementation",
)
"""Plan paths with more values than a grid has."""
EXAMPLES = {
    "plan.pipeline.layout": "chunks from the first to the last, E embedding, t a layer, L head: Et*13|t*15|t*15|t*13L",
    "plan.recompute": {"policy": "block", "num_layers": 3, "layers": "or a list of layer numbers, one by one"},
    "plan.offload.activations": "a share from 0 to 1",
}


def axes(bench: Bench) -> dict[str, Any]:
    best = bench.best
    moves, at = Moves(bench.job, bench.space), {} if best is None else best.changes
    named = [axis.path for axis in bench.space.axes]
    return {
        "axes": {axis.path: list(axis.values) for axis in bench.space.axes if len(axis.values) > 1},
        "job": {axis.path: own_value(bench.job, axis.path) for axis in bench.space.axes if len(axis.values) > 1},
        "best": {path: moves.value(at, path) for path in named if path in at},
        "also_open": [path for path in OPEN if path not in named and not outside({path: 0}, bench.space)],
        "how_to_write": EXAMPLES,
    }


def history(bench: Bench, *, show: str, top: int) -> dict[str, Any]:
    """What was tried, from one of five sides."""
    calls = [trial for trial in bench.trials if trial.outcome.status not in FREE]
    head: dict[str, Any] = {"trials": len(bench.trials), "calls": len(calls)}
    if show == "gaps":
        return head | gaps(bench).document
    if show == "failed":
        return head | {"failed": failures(bench.trials)[:top]}
    return head | {show: [views.trial(item, bench.best) for item in _chosen(bench, show)[:top]]}


def _chosen(bench: Bench, show: str) -> list[Trial]:
    ran = [trial for trial in bench.trials if trial.values and trial.rank[0] < inf]
    if show == "pareto":
        return front(ran, lambda trial: (trial.outcome.step_time or inf, trial.outcome.peak_device or inf))
    if show == "recent":
        return bench.trials[::-1]
    return sorted(ran, key=lambda trial: trial.rank)


def failures(trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """What was refused or failed, alike ones together, the most frequent first."""
    found = Counter(
        (trial.outcome.status, clean(trial.outcome.why, 160)) for trial in trials if trial.outcome.status != "ok"
    )
    return [{"status": status, "why": why, "times": count} for (status, why), count in found.most_common()]


def scratchpad(bench: Bench, *, text: str | None) -> dict[str, Any]:
    if text is not None:
        bench.scratch = clean(text, 4000)
    return {"text": bench.scratch}
