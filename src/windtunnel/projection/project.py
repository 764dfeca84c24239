"""The pipeline, in one screen: a job lowered to ops, priced, put in order, executed; memory from the same ops."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from windtunnel.cost.kernels.gemm import peak
from windtunnel.cost.simulated import simulated_source
from windtunnel.cost.source import CostSource
from windtunnel.job.job import Job
from windtunnel.memory.structure import structures
from windtunnel.ops.weights import active_parameters, total_parameters
from windtunnel.projection.compose import finish
from windtunnel.projection.evidence import by_part, of_parts
from windtunnel.projection.flops import flops_per_token
from windtunnel.projection.memory import per_stage_parameters, project_memory
from windtunnel.projection.result import Parameters, Projection, Provenance
from windtunnel.projection.run import run_answer
from windtunnel.schedule.action import Order
from windtunnel.schedule.job_order import job_order
from windtunnel.step.parts import COMMUNICATION, Parts
from windtunnel.step.step import StepCosts, run_step, stage_parts, step_costs
from windtunnel.step.timeline import Timeline, makespan_only


def project(job: Job, source: CostSource | None = None) -> Projection:
    """Memory and throughput of ``job``; ops are priced by ``source``, by default the simulated one.

    Raises LegalityError where the schedule cannot run the job's stages and micro-batches.
    """
    order = job_order(job)
    costs = step_costs(job, source or simulated_source(job), order)
    timeline = run_step(costs, order)
    seconds = _finished(costs, (spans[-1].end for spans in timeline.spans))
    stage, parts = _busiest(costs, order, seconds)
    evidence = {} if source is None else by_part(job, source, costs, order, stage)

    flops = flops_per_token(job)
    batch = job.plan.batch
    tokens_per_second = batch.global_batch_size * batch.sequence_length / seconds
    each = tokens_per_second / job.cluster.num_accelerators
    peak_flops = peak(job.cluster.accelerator, job.plan.precision.compute)
    return Projection(
        job=job,
        step_time=seconds,
        tokens_per_second=tokens_per_second,
        tokens_per_second_per_accelerator=each,
        flops_per_token=flops,
        model_flops_per_second_per_accelerator=each * flops.causal_half,
        mfu=each * flops.causal_half / peak_flops,
        peak_flops=peak_flops,
        time=parts,
        hidden_communication=_hidden(costs, order, stage),
        memory=project_memory(job),
        parameters=Parameters(
            total=total_parameters(job.model),
            active=active_parameters(job.model, embedding=False, head=True),
            per_stage=per_stage_parameters(structures(job)),
        ),
        schedule_name=job.plan.pipeline.schedule,
        bubble_fraction=_bubble_fraction(timeline),
        num_microbatches=job.plan.num_microbatches,
        busiest_stage=stage,
        provenance=of_parts(evidence, parts) if evidence else Provenance(),
        evidence=evidence,
        costs=costs,
        timeline=timeline,
        run=run_answer(job, seconds),
        warnings=job.warnings,
    )


def step_time(job: Job, source: CostSource | None = None) -> float:
    """Seconds of a step alone, those of ``project``. Raises as ``project``."""
    order = job_order(job)
    costs = step_costs(job, source or simulated_source(job), order)
    return _finished(costs, makespan_only(order, costs.durations(), costs.transfer))


def _finished(costs: StepCosts, ends: Iterable[float]) -> float:
    """The step ends when the last stage has reduced its gradients and stepped its optimizer."""
    return max(float(finish(end, added.total, costs.jitter)) for end, added in zip(ends, costs.additions, strict=True))


def _busiest(costs: StepCosts, order: Order, step_time: float) -> tuple[int, Parts]:
    """The stage with the most seconds of its own (lowest on ties), and the step as it sees it: the rest is bubble."""
    own = [stage_parts(costs, order, rank) for rank in range(order.num_stages)]
    stage = max(range(order.num_stages), key=lambda rank: (own[rank].total, -rank))
    straggling = step_time * (1 - 1 / costs.jitter)
    bubble = step_time - straggling - own[stage].total
    return stage, replace(own[stage], jitter=straggling, bubble=max(0.0, bubble))


def _hidden(costs: StepCosts, order: Order, stage: int) -> dict[str, float]:
    """Communication that costs no time on a stage, in seconds by group."""
    hidden = dict.fromkeys(COMMUNICATION, 0.0)
    for index in order.placement[stage]:
        for group, seconds in costs.chunks[index].hidden.items():
            hidden[group] += seconds * order.num_microbatches
    hidden["dp"] += costs.additions[stage].hidden
    return hidden


def _bubble_fraction(timeline: Timeline) -> float:
    """Share of the pipeline in which the busiest stage waits."""
    busiest = max(timeline.busy(rank) for rank in range(len(timeline.spans)))
    return max(0.0, 1 - busiest / timeline.makespan) if timeline.makespan else 0.0
