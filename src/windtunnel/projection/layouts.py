"""The balanced layout of a job: layers cut into chunks by what they cost, within what a stage can hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from windtunnel.cost.simulated import simulated_source
from windtunnel.cost.source import CostSource
from windtunnel.errors import LegalityError
from windtunnel.job.job import Job
from windtunnel.job.plan import Chunk
from windtunnel.memory.device import overhead_terms
from windtunnel.memory.kept import KeptChunk, fsdp_buffers, head_bytes, kept_chunk, placeholder_bytes, stage_units
from windtunnel.memory.states import byte_rates, shard_sizes, states
from windtunnel.memory.structure import workspace
from windtunnel.ops.chunk import chunk_parameters
from windtunnel.schedule.action import Order
from windtunnel.schedule.balance import ChunkMemory, Held, no_cut
from windtunnel.schedule.in_flight import peaks
from windtunnel.schedule.job_order import job_order
from windtunnel.schedule.layout import balanced_layout
from windtunnel.step.chunk import ChunkCost, price_chunks

Cut = Callable[..., tuple[Chunk, ...]]
"""``balanced_layout`` of a job, given a memory."""

ROUNDING = 1e-9
"""Relative: just less than a chunk holds."""


def balanced(job: Job, source: CostSource | None = None) -> tuple[Chunk, ...]:
    """The layout of as many chunks as the job has whose heaviest chunk lasts least, forward and backward together.

    Embedding, head and MTP depths weigh what they cost; so does each kind of layer with its own recompute. No rank
    holds more than its accelerator has room for; with one chunk a rank the cut is the best of those. A rank of several
    chunks that is too full gives up layers of the chunk where that costs least, until all fit. Raises LegalityError
    where no cut does.
    """
    layers, embedding, head = layer_seconds(job, source or simulated_source(job))
    cut = partial(
        balanced_layout,
        layers,
        len(job.plan.pipeline.layout),
        embedding_weight=embedding,
        head_weight=head,
        num_mtp_layers=job.model.num_mtp_layers,
    )
    return _fitted(cut, layers, chunk_memory(job), job_order(job))


def _fitted(cut: Cut, seconds: Sequence[float], memory: ChunkMemory, order: Order) -> tuple[Chunk, ...]:
    """The cut whose chunks fit one by one, tightened until those of a rank fit together.

    Of the chunks of a rank that is too full the one gives up a layer whose loss lengthens the cut least, of those the
    one with the most layers.
    """
    layout = cut(memory=memory)
    while True:
        counts = [len(chunk.layers) for chunk in layout]
        full = _too_full(memory, counts, order)
        if full is None:
            return layout
        used, found = memory.used(counts), []
        for chunk in full:
            less = [*memory.room[:chunk], used[chunk] * (1 - ROUNDING), *memory.room[chunk + 1 :]]
            tighter = replace(memory, room=less)
            with suppress(LegalityError):
                candidate = cut(memory=tighter)
                found.append((_heaviest(candidate, seconds), -counts[chunk], chunk, candidate, tighter))
        if not found:
            raise LegalityError(no_cut(len(layout)))
        *_, layout, memory = min(found, key=lambda one: one[:3])


def _too_full(memory: ChunkMemory, counts: Sequence[int], order: Order) -> tuple[int, ...] | None:
    """The chunks of the first rank that holds more than its room, at its fullest moment."""
    static, kept = memory.used(counts, in_flight=0.0), memory.used(counts, in_flight=1.0)
    for chunks, vectors in zip(order.placement, peaks(order), strict=True):
        own = sum(static[chunk] for chunk in chunks)
        alive = (sum(n * (kept[c] - static[c]) for n, c in zip(vector, chunks, strict=True)) for vector in vectors)
        if own + max(alive) > max(memory.room):
            return chunks
    return None


def _heaviest(layout: Sequence[Chunk], seconds: Sequence[float]) -> float:
    return max(sum(seconds[layer] for layer in chunk.layers) for chunk in layout)


def layer_seconds(job: Job, source: CostSource) -> tuple[list[float], float, float]:
    """Seconds of every layer, of the embedding, and of head with MTP depths, for one micro-batch."""
    *layers, embedding, head = _priced(job, source, _pieces(job))
    return layers, embedding, head


def chunk_memory(job: Job) -> ChunkMemory:
    """What every layer holds, and the room of a rank as that of each of its chunks.

    What serves all layers, and the largest passing need of any, is set aside on every rank; a chunk counts its own most
    micro-batches alive. What fits here fits, but for an optimizer whose temporaries outgrow the activations.
    """
    pieces = _pieces(job)
    kept = [kept_chunk(job, piece) for piece in pieces]
    *layers, embedding, head = [_held(job, piece, each) for piece, each in zip(pieces, kept, strict=True)]
    passing = max(max(each.backward, each.recompute) for each in kept)
    share, fixed = overhead_terms(job)
    units = stage_units(job, pieces)
    resident = placeholder_bytes(job, units) + fsdp_buffers(job, units) + workspace(job)
    room = (job.cluster.accelerator.hbm_capacity - fixed) / (1 + share) - resident - passing
    order = job_order(job)
    in_flight = [0.0] * order.num_chunks
    for chunks, vectors in zip(order.placement, peaks(order), strict=True):
        for local, chunk in enumerate(chunks):
            in_flight[chunk] = max(in_flight[chunk], *(vector[local] for vector in vectors))
    return ChunkMemory(
        layers=layers, in_flight=in_flight, room=[room] * order.num_chunks, embedding=embedding, head=head
    )


def _pieces(job: Job) -> tuple[Chunk, ...]:
    """Every layer on its own, the embedding, and the head with MTP depths."""
    one_by_one = tuple(Chunk((index,)) for index in range(job.model.num_layers))
    return (*one_by_one, Chunk((), embedding=True), Chunk((), head=True, num_mtp_layers=job.model.num_mtp_layers))


def _held(job: Job, piece: Chunk, kept: KeptChunk) -> Held:
    """Static state, and what a micro-batch keeps; logits count as kept, the worst of a loss as static."""
    parameters = chunk_parameters(job, piece)
    state = states(parameters.dense, parameters.expert, *shard_sizes(job), byte_rates(job))
    loss = kept.loss_peak + head_bytes(job, stage_units(job, (piece,)))
    return Held(
        static=state.weights + state.gradients + state.master + state.moments + state.gathered + loss,
        kept=kept.activations + kept.dispatcher + kept.logits,
    )


def _priced(job: Job, source: CostSource, chunks: tuple[Chunk, ...]) -> list[float]:
    """Seconds of chunks that need not be the job's, without the launches a chunk adds."""
    pipeline = replace(job.plan.pipeline, layout=chunks)
    costs = price_chunks(replace(job, plan=replace(job.plan, pipeline=pipeline)), source)
    return [_device_seconds(cost) for cost in costs]


def _device_seconds(cost: ChunkCost) -> float:
    return sum(unit.occurrences * (unit.cost.forward.total + unit.cost.backward) for unit in cost.units)
