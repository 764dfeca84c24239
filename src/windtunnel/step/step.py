"""One training step: chunks priced, the order executed, data-parallel traffic and optimizer added."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log2

from windtunnel.cost.collectives.placement import placements
from windtunnel.cost.source import CostSource
from windtunnel.dtypes import BYTES, activation
from windtunnel.job.job import Job
from windtunnel.schedule.action import Order
from windtunnel.step.chunk import ChunkCost, price_chunks
from windtunnel.step.data_parallel import DataParallel, StepAddition
from windtunnel.step.parts import ZERO, Parts
from windtunnel.step.timeline import ChunkDurations, Timeline, execute


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCosts:
    """What a step is made of before it is put in order: costs by global chunk, additions by stage, seconds of a hop."""

    chunks: tuple[ChunkCost, ...]
    additions: tuple[StepAddition, ...]
    transfer: float
    jitter: float
    """Factor on the step: stragglers among many ranks."""

    def durations(self) -> tuple[ChunkDurations, ...]:
        return tuple(
            ChunkDurations(chunk.forward.total, chunk.backward_input.total, chunk.backward_weight.total)
            for chunk in self.chunks
        )


def step_costs(job: Job, source: CostSource, order: Order) -> StepCosts:
    """Price every chunk and stage of ``job``."""
    chunks, hop = chunks_with_hops(job, source)
    data_parallel = DataParallel(job, source)
    additions = tuple(data_parallel.addition(tuple(chunks[index] for index in held)) for held in order.placement)
    return StepCosts(chunks=chunks, additions=additions, transfer=hop, jitter=jitter(job))


def chunks_with_hops(job: Job, source: CostSource) -> tuple[tuple[ChunkCost, ...], float]:
    """Costs by global chunk with what blocking transfers add, equal chunks as one object; and the seconds of a hop."""
    hop = transfer(job, source)
    wait = blocking(job, hop, p2p=job.plan.overlap.p2p)
    priced = price_chunks(job, source)
    waited = {id(chunk): _with_wait(chunk, wait) for chunk in priced}
    return tuple(waited[id(chunk)] for chunk in priced), hop


def jitter(job: Job) -> float:
    """Factor on the step time for stragglers: grows with each doubling of ranks beyond one node of eight."""
    return 1 + job.constants.step.jitter * log2(max(1.0, job.cluster.num_accelerators / 8))


def run_step(costs: StepCosts, order: Order) -> Timeline:
    """Execute the order under the priced durations."""
    return execute(order, costs.durations(), costs.transfer)


def stage_parts(costs: StepCosts, order: Order, rank: int) -> Parts:
    """Seconds of all actions of a stage and of its additions, by part; waiting excluded."""
    total = ZERO
    for index in order.placement[rank]:
        chunk = costs.chunks[index]
        total += (chunk.forward + chunk.backward_input + chunk.backward_weight).scaled(order.microbatches_per_chunk)
    addition = costs.additions[rank]
    return total + Parts(
        dp=addition.exposed,
        contention=addition.contention,
        optimizer=addition.optimizer,
        offload=addition.offload,
    )


def transfer(job: Job, source: CostSource) -> float:
    """Seconds to hand one micro-batch's hidden states to the next stage: a share each where ranks hold shares of them,
    or scatter what they hold whole and gather it again."""
    plan = job.plan
    if plan.parallel.pp == 1:
        return 0.0
    tp, sharded = plan.parallel.tp, plan.parallel.sequence_parallel
    tokens = plan.batch.micro_batch_size * plan.batch.sequence_length / plan.parallel.cp
    size = BYTES[activation(plan.precision.compute)] * tokens * job.model.hidden_size
    placed = placements(plan.parallel, job.cluster)
    if tp == 1 or not (sharded or job.software.traits.scatters_transfers):
        return source.transfer(size, placed["pp"])
    share = source.transfer(size / tp, placed["pp"])
    return share if sharded else share + source.collective("all_gather", size, placed["tp"])


def blocking(job: Job, hop: float, *, p2p: bool) -> float:
    """Half a transfer on every F and B where sends do not overlap compute: without p2p overlap, or unchunked."""
    plan = job.plan
    overlapped = p2p and plan.pipeline.virtual_stages > 1
    return 0.0 if overlapped or plan.parallel.pp == 1 else hop / 2


def _with_wait(chunk: ChunkCost, wait: float) -> ChunkCost:
    if wait == 0.0:
        return chunk
    return replace(
        chunk,
        forward=chunk.forward + Parts(pp=wait),
        backward_input=chunk.backward_input + Parts(pp=wait),
    )
