"""Projections, plans and trials as a model reads them: few figures, rounded, units in the names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windtunnel.agent.words import clean
from windtunnel.errors import WindtunnelError
from windtunnel.memory.breakdown import MemoryBreakdown
from windtunnel.projection.result import Memory, Projection
from windtunnel.search.trial import Trial
from windtunnel.step.parts import NAMES, Parts

GIB = 2**30
CLASSES = (
    "weights", "gradients", "master", "moments", "activations", "logits", "buffers", "dispatcher", "overhead",
)  # fmt: skip


def figure(value: float, digits: int = 5) -> float:
    """Rounded to so many digits."""
    return float(f"{value:.{digits}g}")


def gib(value: float) -> float:
    return round(value / GIB, 2)


def percent(share: float) -> str:
    return f"{100 * share:+.2f} %"


def summary(answer: Projection) -> dict[str, Any]:
    """One plan by the model."""
    return {
        "step_time_s": figure(answer.step_time),
        "tokens_per_second_per_accelerator": figure(answer.tokens_per_second_per_accelerator, 4),
        "mfu": round(answer.mfu, 4),
        "seconds": parts(answer.time),
        "memory": memory(answer.memory),
    }


def parts(time: Parts) -> dict[str, float]:
    """Parts of a step that take time, in seconds."""
    return {name: figure(getattr(time, name), 4) for name in NAMES if getattr(time, name)}


def memory(found: Memory) -> dict[str, Any]:
    """The verdict and the fullest rank."""
    return {
        "verdict": found.verdict,
        "peak_gib": gib(found.peak.device),
        "capacity_gib": gib(found.capacity),
        "fullest_stage": found.peak.stage,
        "at": found.peak.moment,
    }


def stage_bytes(stage: MemoryBreakdown) -> dict[str, Any]:
    """What a rank of a stage holds at its peak, in GiB."""
    held = {name: gib(getattr(stage, name)) for name in CLASSES if getattr(stage, name) >= GIB / 100}
    return {"stage": stage.stage, "at": stage.moment, "device_gib": gib(stage.device), "gib": held}


def plan(changes: Mapping[str, Any]) -> dict[str, Any]:
    return dict(changes)


def trial(item: Trial, best: Trial | None = None) -> dict[str, Any]:
    """A trial on one line."""
    outcome = item.outcome
    found: dict[str, Any] = {"trial": item.number, "by": item.proposer, "status": outcome.status}
    if outcome.step_time is not None:
        found["step_time_s"] = figure(outcome.step_time)
        if best is not None and best.outcome.step_time:
            found["against_best"] = percent(outcome.step_time / best.outcome.step_time - 1)
    if outcome.peak_device is not None:
        found["peak_gib"] = gib(outcome.peak_device)
    if outcome.why:
        found["why"] = clean(outcome.why, 300)
    return found | {"changes": plan(item.changes)}


def refused(error: WindtunnelError) -> dict[str, Any]:
    """Every fault with what to do about it."""
    faults: Sequence[Any] = error.faults
    return {
        "legal": False,
        "faults": [
            {"path": clean(f.path, 200), "value": clean(f.value, 80), "rule": clean(f.rule, 300),
             "remedy": clean(f.remedy, 300)}
            for f in faults[:8]
        ],
    }  # fmt: skip
