"""What a stage holds at each moment that could be its peak, apart from data-parallel sharding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from typing import NamedTuple

from windtunnel.elementwise import Number, maximum
from windtunnel.job.job import Job
from windtunnel.job.plan import Chunk, Overlap
from windtunnel.memory.breakdown import Moment
from windtunnel.memory.kept import (
    KeptChunk,
    fsdp_buffers,
    head_bytes,
    kept_chunk,
    largest_tensor,
    placeholder_bytes,
    reduction_bytes,
    stage_units,
)
from windtunnel.ops.chunk import NO_PARAMETERS, LocalParameters, Unit, chunk_parameters, units
from windtunnel.ops.context import context
from windtunnel.schedule.in_flight import peaks
from windtunnel.schedule.job_order import job_order


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Bytes alive at one moment on top of the static state."""

    moment: Moment
    in_flight: Number
    activations: Number
    dispatcher: Number
    logits: Number
    passing: Number

    @property
    def alive(self) -> Number:
        return self.activations + self.dispatcher + self.logits + self.passing


@dataclass(frozen=True, slots=True, kw_only=True)
class StageStructure:
    """Parameters of a stage and its candidate moments; ``resident`` bytes live through all of them.

    ``cached`` bytes lie free in the allocator at the peak, in blocks too small to serve it; ``largest_tensor`` counts
    the parameters of the largest matrix.
    """

    parameters: LocalParameters
    candidates: tuple[Candidate, ...]
    resident: float
    offloaded: float
    cached: float
    largest_tensor: float


def structures(job: Job) -> tuple[StageStructure, ...]:
    """One structure a pipeline stage, by walking the schedule's order. Raises LegalityError if it does not apply."""
    return _structures(stripped(job))


def stripped(job: Job) -> Job:
    """The job without what leaves a stage's structure alone: replicas, shard size, overlap, origins."""
    plan = job.plan
    return Job(
        model=job.model,
        cluster=replace(job.cluster, num_accelerators=1),
        software=job.software,
        constants=job.constants,
        plan=replace(
            plan,
            parallel=replace(plan.parallel, dp=1),
            batch=replace(plan.batch, global_batch_size=plan.num_microbatches * plan.batch.micro_batch_size),
            sharding=replace(plan.sharding, shard_size=1),
            overlap=Overlap(),
        ),
    )


@lru_cache(maxsize=2048)
def _structures(job: Job) -> tuple[StageStructure, ...]:
    order = job_order(job)
    layout = _alike(job)
    kept = {chunk: kept_chunk(job, chunk) for chunk in dict.fromkeys(layout)}
    held_by: dict[tuple[Chunk, ...], Holding] = {}
    result = []
    for held, vectors in zip(order.placement, peaks(order), strict=True):
        chunks = tuple(layout[index] for index in held)
        if chunks not in held_by:
            held_by[chunks] = stage_holding(job, chunks)
        stage, own = held_by[chunks], tuple(kept[chunk] for chunk in chunks)
        candidates = [
            item for vector in vectors for item in candidates_of(own, vector, order.virtual_stages, stage.head)
        ]
        result.append(
            StageStructure(
                parameters=stage.parameters,
                candidates=(*candidates, _after("gradient_reduction", stage.reduction), _after("optimizer", 0.0)),
                resident=stage.resident + received_ahead(job, held),
                offloaded=max(sum(n * k.offloaded for n, k in zip(v, own, strict=True)) for v in vectors),
                cached=_cached(candidates, max(k.loss_cached for k in own)),
                largest_tensor=stage.largest_tensor,
            )
        )
    return tuple(result)


def _alike(job: Job) -> tuple[Chunk, ...]:
    """The layout with every chunk replaced by the first one that holds the same, whatever its layers are called."""
    first: dict[object, Chunk] = {}
    return tuple(
        first.setdefault((units(job, chunk), chunk.head, chunk.num_mtp_layers), chunk)
        for chunk in job.plan.pipeline.layout
    )


class Holding(NamedTuple):
    """What a stage holds whatever is in flight; ``head`` bytes live while the loss does, ``reduction`` bytes while the
    last gradients are reduced."""

    parameters: LocalParameters
    resident: float
    head: float
    reduction: float
    largest_tensor: float


def stage_holding(job: Job, chunks: tuple[Chunk, ...]) -> Holding:
    parameters = NO_PARAMETERS
    each = {chunk: chunk_parameters(job, chunk) for chunk in dict.fromkeys(chunks)}
    for chunk in chunks:
        parameters += each[chunk]
    return units_holding(job, stage_units(job, chunks))._replace(parameters=parameters)


def units_holding(job: Job, held: tuple[Unit, ...]) -> Holding:
    """What a stage of these distinct units holds, its parameters apart."""
    return Holding(
        parameters=NO_PARAMETERS,
        resident=placeholder_bytes(job, held) + fsdp_buffers(job, held) + workspace(job),
        head=head_bytes(job, held),
        reduction=reduction_bytes(job, held),
        largest_tensor=largest_tensor(job, held),
    )


def _cached(candidates: list[Candidate], freed: float) -> Number:
    """Bytes that the loss leaves free in small blocks, as far as the stage's peak does not use them again."""
    losses = [candidate.alive + freed for candidate in candidates if candidate.moment == "loss"]
    return max(0.0, max(losses, default=0.0) - max(candidate.alive for candidate in candidates))


def candidates_of(
    own: Sequence[KeptChunk], alive: Sequence[Number], virtual_stages: int, beside: Number
) -> list[Candidate]:
    """The loss, a backward and a recompute, with ``alive`` micro-batches in flight on each chunk.

    ``beside`` bytes serve the loss alone. Numbers or arrays over plans, as everything in ``own`` and ``alive``.
    """
    pairs = tuple(zip(alive, own, strict=True))
    activations = sum(n * k.activations for n, k in pairs)
    dispatcher = sum(n * k.dispatcher for n, k in pairs)
    logits = sum(n * k.logits for n, k in pairs)
    # The chunk that computes a loss frees one micro-batch's logits before its first layer runs backward.
    waiting = sum(maximum(n - 1, 0) * k.logits for n, k in pairs)

    def at(moment: Moment, logits: Number, passing: Number) -> Candidate:
        return Candidate(
            moment=moment,
            in_flight=sum(alive) / virtual_stages,
            activations=activations,
            dispatcher=dispatcher,
            logits=logits,
            passing=passing,
        )

    return [
        at("backward", waiting, reduce(maximum, (k.backward for k in own))),
        at("recompute", waiting, reduce(maximum, (k.recompute for k in own))),
        at("loss", logits + reduce(maximum, (k.loss_peak for k in own)), beside),
    ]


def received_ahead(job: Job, held: tuple[int, ...]) -> float:
    """Hidden states and their gradients that a stage allocates for all micro-batches at once.

    What a chunk receives takes the place of its kept input as micro-batches come in; its outputs wait as long.
    """
    if not job.software.traits.receives_ahead:
        return 0.0
    ctx, last = context(job), len(job.plan.pipeline.layout) - 1
    each = ctx.width * ctx.tokens * job.model.hidden_size / ctx.residual_shards
    return job.plan.num_microbatches * each * sum((chunk > 0) + (chunk < last) for chunk in held)


def _after(moment: Moment, passing: float) -> Candidate:
    """A moment after the last backward: nothing is in flight."""
    return Candidate(moment=moment, in_flight=0.0, activations=0.0, dispatcher=0.0, logits=0.0, passing=passing)


def workspace(job: Job) -> float:
    """Library workspaces inside the allocator, by architecture and kind of layers."""
    memory, accelerator = job.constants.memory, job.cluster.accelerator
    if accelerator.is_tpu:
        return 0.0
    if accelerator.architecture in ("volta", "ampere", "ada"):
        return memory.workspace_old
    return memory.workspace_moe if job.model.is_moe else memory.workspace
