"""What a stage holds at each moment that could be its peak, apart from data-parallel sharding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce

from windtunnel.elementwise import Number, maximum
from windtunnel.job.job import Job
from windtunnel.job.plan import Overlap
from windtunnel.memory.breakdown import Moment
from windtunnel.memory.kept import (
    KeptChunk,
    fsdp_buffers,
    head_bytes,
    kept_chunk,
    largest_tensor,
    placeholder_bytes,
)
from windtunnel.ops.chunk import LocalParameters, chunk_parameters
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
    plan = job.plan
    order = job_order(job)
    layout = plan.pipeline.layout
    kept = [kept_chunk(job, chunk) for chunk in layout]
    result = []
    for held, vectors in zip(order.placement, peaks(order), strict=True):
        chunks = tuple(layout[index] for index in held)
        parameters = LocalParameters(0.0, 0.0)
        for chunk in chunks:
            parameters += chunk_parameters(job, chunk)
        own = tuple(kept[index] for index in held)
        head = head_bytes(job, chunks)
        candidates = [item for vector in vectors for item in candidates_of(own, vector, order.virtual_stages, head)]
        result.append(
            StageStructure(
                parameters=parameters,
                candidates=(*candidates, OPTIMIZER),
                resident=placeholder_bytes(job, chunks) + fsdp_buffers(job, chunks) + workspace(job),
                offloaded=max(sum(n * k.offloaded for n, k in zip(v, own, strict=True)) for v in vectors),
                cached=_cached(candidates, max(k.loss_cached for k in own)),
                largest_tensor=largest_tensor(job, chunks),
            )
        )
    return tuple(result)


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


OPTIMIZER = Candidate(moment="optimizer", in_flight=0.0, activations=0.0, dispatcher=0.0, logits=0.0, passing=0.0)


def workspace(job: Job) -> float:
    """Library workspaces inside the allocator, by architecture and kind of layers."""
    memory, accelerator = job.constants.memory, job.cluster.accelerator
    if accelerator.is_tpu:
        return 0.0
    if accelerator.architecture in ("volta", "ampere", "ada"):
        return memory.workspace_old
    return memory.workspace_moe if job.model.is_moe else memory.workspace
