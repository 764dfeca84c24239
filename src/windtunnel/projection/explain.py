"""Why a step takes what it takes: what binds each stage, what the assumptions are worth, which one knob helps most."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from windtunnel.cost.simulated import simulated_source
from windtunnel.cost.source import CostSource
from windtunnel.errors import WindtunnelError
from windtunnel.job.job import Job, Origin
from windtunnel.ops.chunk import lower_unit, units
from windtunnel.ops.op import Attention, Gemm, GroupedGemm, Op, Scan, Stream
from windtunnel.projection.project import project
from windtunnel.projection.result import Assumption, Binding, Explanation, Knob, Projection
from windtunnel.schedule.job_order import job_order
from windtunnel.step.chunk import stripped
from windtunnel.step.parts import NAMES
from windtunnel.step.step import stage_parts, step_costs

Vary = Callable[[Mapping[str, object]], Job]
"""The same job with other values at full job paths, derived anew; raises WindtunnelError where that is illegal."""

Run = Callable[[Job], Projection]
"""How a job is projected: on simulated seconds, or on those of a profile."""

RECOMPUTE_OFF: dict[str, object] = {"plan.recompute": {"policy": "none"}}
RECOMPUTE_FULL: dict[str, object] = {"plan.recompute": {"policy": "full"}}


def explain(projection: Projection, vary: Vary, run: Run = project, source: CostSource | None = None) -> Projection:
    """The projection with its ``explanation``: knobs that keep the job legal, best step time first.

    ``run`` projects what is varied as ``projection`` was, whose ops ``source`` priced, by default the simulated one.
    """
    return replace(
        projection,
        explanation=Explanation(
            binding=_binding(projection.job, source or simulated_source(projection.job)),
            assumptions=tuple(_assumptions(projection, vary, run)),
            knobs=_knobs(projection, vary, run),
        ),
    )


def _binding(job: Job, source: CostSource) -> tuple[Binding, ...]:
    """The largest term of each stage's own seconds and its share of them; compute is split by what runs."""
    order = job_order(job)
    costs = step_costs(job, source, order)
    bindings = []
    for rank in range(order.num_stages):
        parts = stage_parts(costs, order, rank)
        terms = {name: getattr(parts, name) for name in NAMES if name != "compute"}
        terms |= _compute(job, source, order.placement[rank], order.microbatches_per_chunk)
        term = max(terms, key=lambda name: terms[name])
        bindings.append(Binding(stage=rank, term=term, share=terms[term] / parts.total))
    return tuple(bindings)


def _compute(job: Job, source: CostSource, held: Sequence[int], microbatches: float) -> dict[str, float]:
    """Seconds of some chunks' compute over a step: matrix products, attention, and passes over memory."""
    seconds = {"matmul": 0.0, "attention": 0.0, "memory_bound": 0.0}
    base = stripped(job)
    for index in held:
        for unit, occurrences in units(job, job.plan.pipeline.layout[index]):
            inside = source.within(base, unit)
            for op in lower_unit(base, unit):
                kind = _kind(op)
                if kind is not None:
                    seconds[kind] += inside.cost(op).seconds * occurrences * microbatches
    return seconds


def _kind(op: Op) -> str | None:
    if isinstance(op, Gemm | GroupedGemm):
        return "matmul"
    if isinstance(op, Attention | Scan):
        return "attention"
    return "memory_bound" if isinstance(op, Stream) else None


def _assumptions(projection: Projection, vary: Vary, run: Run) -> list[Assumption]:
    """Values nobody gave, each with the relative change of step time were it otherwise, the largest change first.

    A switch is turned; a choice takes the alternative that changes most.
    """
    found = []
    for origin in projection.job.origin:
        effects = [
            Assumption(path=origin.path, otherwise=other, effect=run(job).step_time / projection.step_time - 1)
            for other in _alternatives(origin)
            if (job := _try(vary, {origin.path: other})) is not None
        ]
        found += [max(effects, key=lambda item: abs(item.effect))] if effects else []
    return sorted((item for item in found if abs(item.effect) > NOISE), key=lambda item: -abs(item.effect))


NOISE = 5e-4
"""Relative change of step time below which an assumption does not matter."""

ALTERNATIVES: dict[str, tuple[object, ...]] = {
    "software.attention": ("te-fused", "flash2", "sdpa", "unfused"),
    "software.cuda_graphs": ("none", "partial", "full_iteration"),
    "plan.precision.grad_reduce": ("bf16", "fp32"),
    "plan.precision.params": ("bf16", "fp32"),
    "plan.recompute.policy": ("none", "full"),
    "plan.moe.dispatcher": ("alltoall", "deepep", "hybridep"),
    "plan.sharding.strategy": ("zero1", "fsdp"),
}


def _alternatives(origin: Origin) -> list[object]:
    if origin.level not in ("software", "neutral") or not origin.path.startswith(("plan.", "software.")):
        return []
    if isinstance(origin.value, bool):
        return [not origin.value]
    return [other for other in ALTERNATIVES.get(origin.path, ()) if other != origin.value]


def _knobs(projection: Projection, vary: Vary, run: Run) -> tuple[Knob, ...]:
    knobs = []
    for changes in _single_changes(projection.job):
        changed = _try(vary, changes)
        if changed is None:
            continue
        answer = run(changed)
        if answer.memory.verdict != "oom" and answer.step_time < projection.step_time:
            knobs.append(
                Knob(
                    changes=tuple(changes.items()),
                    step_time=answer.step_time,
                    peak_device=answer.memory.peak.device,
                    simulated=answer.provenance.simulated,
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
