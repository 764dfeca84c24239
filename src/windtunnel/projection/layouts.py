"""The balanced layout of a job: layers cut into chunks by what they cost."""

from __future__ import annotations

from dataclasses import replace

from windtunnel.cost.simulated import simulated_source
from windtunnel.cost.source import CostSource
from windtunnel.job.job import Job
from windtunnel.job.plan import Chunk
from windtunnel.schedule.layout import balanced_layout
from windtunnel.step.chunk import ChunkCost, price_chunks


def balanced(job: Job, source: CostSource | None = None) -> tuple[Chunk, ...]:
    """The layout of as many chunks as the job has whose heaviest chunk lasts least, forward and backward together.

    Embedding, head and MTP depths weigh what they cost; so does each kind of layer with its own recompute.
    """
    layers, embedding, head = layer_seconds(job, source or simulated_source(job))
    return balanced_layout(
        layers,
        len(job.plan.pipeline.layout),
        embedding_weight=embedding,
        head_weight=head,
        num_mtp_layers=job.model.num_mtp_layers,
    )


def layer_seconds(job: Job, source: CostSource) -> tuple[list[float], float, float]:
    """Seconds of every layer, of the embedding, and of head with MTP depths, for one micro-batch."""
    one_by_one = tuple(Chunk((index,)) for index in range(job.model.num_layers))
    ends = (Chunk((), embedding=True), Chunk((), head=True, num_mtp_layers=job.model.num_mtp_layers))
    *layers, embedding, head = _priced(job, source, (*one_by_one, *ends))
    return layers, embedding, head


def _priced(job: Job, source: CostSource, chunks: tuple[Chunk, ...]) -> list[float]:
    """Seconds of chunks that need not be the job's, without the launches a chunk adds."""
    pipeline = replace(job.plan.pipeline, layout=chunks)
    costs = price_chunks(replace(job, plan=replace(job.plan, pipeline=pipeline)), source)
    return [_device_seconds(cost) for cost in costs]


def _device_seconds(cost: ChunkCost) -> float:
    return sum(unit.occurrences * (unit.cost.forward.total + unit.cost.backward) for unit in cost.units)
