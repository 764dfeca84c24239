"""Why a step takes what it takes: what binds each stage, what the assumptions are worth, which one knob helps most."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from windtunnel.cost.simulated import simulated_source
from windtunnel.errors import WindtunnelError
from windtunnel.job.job import Job, Origin
from windtunnel.projection.project import project
from windtunnel.projection.result import Assumption, Binding, Explanation, Knob, Projection
from windtunnel.schedule.job_order import job_order
from windtunnel.step.parts import NAMES
from windtunnel.step.step import stage_parts, step_costs

Vary = Callable[[Mapping[str, object]], Job]
"""The same job with other values at full job paths, derived anew; raises WindtunnelError where that is illegal."""

RECOMPUTE_OFF: dict[str, object] = {"plan.recompute": {"policy": "none"}}
RECOMPUTE_FULL: dict[str, object] = {"plan.recompute": {"policy": "full"}}


def explain(projection: Projection, vary: Vary) -> Projection:
    """The projection with its ``explanation``: knobs that keep the job legal, best step time first."""
    job = projection.job
    return replace(
        projection,
        explanation=Explanation(
            binding=_binding(job),
            assumptions=tuple(_assumptions(projection, vary)),
            knobs=_knobs(projection, vary),
        ),
    )


def _binding(job: Job) -> tuple[Binding, ...]:
    """The largest part of each stage's own seconds and its share of them."""
    order = job_order(job)
    costs = step_costs(job, simulated_source(job), order)
    bindings = []
    for rank in range(order.num_stages):
        parts = stage_parts(costs, order, rank)
        term = max(NAMES, key=lambda name: getattr(parts, name))
        bindings.append(Binding(stage=rank, term=term, share=getattr(parts, term) / parts.total))
    return tuple(bindings)


def _assumptions(projection: Projection, vary: Vary) -> list[Assumption]:
    """Switches nobody gave, each with the relative change of step time if it were the other way."""
    found = []
    for origin in projection.job.origin:
        if origin.level in ("software", "neutral") and isinstance(origin.value, bool) and _matters(origin):
            changed = _try(vary, {origin.path: not origin.value})
            if changed is not None:
                effect = project(changed).step_time / projection.step_time - 1
                found.append(Assumption(path=origin.path, effect=effect))
    return sorted((item for item in found if item.effect), key=lambda item: -abs(item.effect))


def _matters(origin: Origin) -> bool:
    return origin.path.startswith(("plan.", "software."))


def _knobs(projection: Projection, vary: Vary) -> tuple[Knob, ...]:
    knobs = []
    for changes in _single_changes(projection.job):
        changed = _try(vary, changes)
        if changed is None:
            continue
        answer = project(changed)
        if answer.memory.verdict != "oom" and answer.step_time < projection.step_time:
            knobs.append(
                Knob(
                    changes=tuple(changes.items()),
                    step_time=answer.step_time,
                    peak_device=answer.memory.peak.device,
                )
            )
    return tuple(sorted(knobs, key=lambda knob: knob.step_time))


def _single_changes(job: Job) -> list[dict[str, object]]:
    """One step on each axis that keeps accelerators, global batch and precision."""
    plan = job.plan
    changes: list[dict[str, object]] = []
    degrees = {"tp": plan.parallel.tp, "pp": plan.parallel.pp, "cp": plan.parallel.cp, "ep": plan.parallel.ep}
    for axis, degree in degrees.items():
        if axis == "ep" and not job.model.is_moe:
            continue
        changes += [{f"plan.parallel.{axis}": value} for value in (degree * 2, degree // 2) if value >= 1]
    micro = plan.batch.micro_batch_size
    changes += [{"plan.batch.micro_batch_size": value} for value in (micro * 2, micro // 2) if value >= 1]
    virtual = plan.pipeline.virtual_stages
    changes += [{"plan.pipeline.virtual_stages": value} for value in (virtual * 2, virtual // 2) if value >= 1]
    changes += [RECOMPUTE_OFF] if any(plan.recompute) else [RECOMPUTE_FULL]
    switches = {
        "grad_reduce": plan.overlap.grad_reduce,
        "param_gather": plan.overlap.param_gather,
        "tp_comm": plan.overlap.tp_comm,
        "p2p": plan.overlap.p2p,
        "ep_comm": plan.overlap.ep_comm,
    }
    changes += [{f"plan.overlap.{name}": True} for name, on in switches.items() if not on]
    return changes


def _try(vary: Vary, changes: Mapping[str, object]) -> Job | None:
    """The varied job, or None where the change is not legal."""
    try:
        return vary(changes)
    except WindtunnelError:
        return None
