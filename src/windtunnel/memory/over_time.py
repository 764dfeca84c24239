"""Bytes alive on every rank from the start of a step to its end: the order says what is kept, the timeline when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from windtunnel.job.job import Job
from windtunnel.job.plan import Chunk
from windtunnel.memory.breakdown import Allocation, Moment
from windtunnel.memory.kept import KeptChunk, head_bytes, kept_chunk, reduction_bytes, stage_units
from windtunnel.memory.states import States, byte_rates, shard_sizes, states
from windtunnel.memory.structure import structures
from windtunnel.schedule.action import Kind, Order


class Ran(Protocol):
    """One action as it ran; ``chunk`` is the global chunk, seconds from the start of the step."""

    @property
    def kind(self) -> Kind: ...
    @property
    def chunk(self) -> int: ...
    @property
    def start(self) -> float: ...
    @property
    def end(self) -> float: ...


class Executed(Protocol):
    """An order with what ran when on every rank."""

    @property
    def order(self) -> Order: ...
    @property
    def spans(self) -> Sequence[Sequence[Ran]]: ...


class Point(NamedTuple):
    """``allocated`` bytes from ``time`` seconds on, until the next point."""

    time: float
    allocated: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Alive(Allocation):
    """The allocation of a rank from ``time`` on."""

    time: float


class _Level(NamedTuple):
    """Bytes on top of the static state from ``time`` on, with micro-batches of each local chunk in flight."""

    time: float
    moment: Moment
    alive: tuple[int, ...]
    logits: float
    passing: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rank:
    """One rank: its static state, what its chunks keep, and the levels of the step."""

    held: States
    resident: float
    kept: tuple[KeptChunk, ...]
    virtual_stages: int
    levels: tuple[_Level, ...]

    def at(self, level: _Level) -> Alive:
        counted = tuple(zip(level.alive, self.kept, strict=True))
        return Alive(
            time=level.time,
            moment=level.moment,
            in_flight=sum(level.alive) / self.virtual_stages,
            weights=self.held.weights,
            gradients=self.held.gradients,
            master=self.held.master,
            moments=self.held.moments,
            activations=sum(n * kept.activations for n, kept in counted),
            logits=level.logits,
            buffers=self.held.gathered + self.resident + level.passing,
            dispatcher=sum(n * kept.dispatcher for n, kept in counted),
        )


def memory_over_time(job: Job, timeline: Executed) -> tuple[tuple[Point, ...], ...]:
    """Per rank, allocated bytes as a step function of seconds; the last point is the optimizer, until the step ends.

    A forward holds what it keeps from its start, and its loss the logits; a backward its layer's passing needs, and
    what recompute re-executes; weight gradients, once done, free the micro-batch. The highest point is the peak that
    ``project`` reports. Raises LegalityError where the schedule does not apply.
    """
    return tuple(
        tuple([Point(level.time, rank.at(level).allocated) for level in rank.levels]) for rank in _ranks(job, timeline)
    )


def alive_at_peak(job: Job, timeline: Executed) -> tuple[Alive, ...]:
    """Per rank, what is alive when most is, class by class; the first such moment. Raises as ``memory_over_time``."""
    return tuple(max(map(rank.at, rank.levels), key=lambda alive: alive.allocated) for rank in _ranks(job, timeline))


def _ranks(job: Job, timeline: Executed) -> Iterator[_Rank]:
    order, layout = timeline.order, job.plan.pipeline.layout
    kept = {chunk: kept_chunk(job, chunk) for chunk in dict.fromkeys(layout)}
    dense_shard, expert_shard = shard_sizes(job)
    rates = byte_rates(job)
    for spans, held, structure in zip(timeline.spans, order.placement, structures(job), strict=True):
        chunks = tuple(layout[index] for index in held)
        parameters = structure.parameters
        static = states(parameters.dense, parameters.expert, dense_shard, expert_shard, rates, structure.largest_tensor)
        own = tuple(kept[chunk] for chunk in chunks)
        yield _Rank(
            held=static,
            resident=structure.resident,
            kept=own,
            virtual_stages=order.virtual_stages,
            levels=tuple(_levels(spans, held, own, _passing(job, chunks, static))),
        )


class _Passing(NamedTuple):
    """Bytes beside the loss, during the last reduction and during the optimizer step."""

    loss: float
    reduction: float
    stepping: float


def _passing(job: Job, chunks: tuple[Chunk, ...], static: States) -> _Passing:
    held = stage_units(job, chunks)
    return _Passing(head_bytes(job, held), reduction_bytes(job, held), static.stepping)


def _levels(
    spans: Sequence[Ran], held: Sequence[int], kept: tuple[KeptChunk, ...], beside: _Passing
) -> Iterator[_Level]:
    """A level where each action starts, and one after it where the rank waits."""
    alive = [0] * len(held)
    local = {chunk: index for index, chunk in enumerate(held)}
    backward = max(k.backward for k in kept)
    needs = max(backward, *(k.recompute for k in kept))
    moment: Moment = "recompute" if needs > backward else "backward"
    for span, after in zip(spans, [*spans[1:], None], strict=True):
        index, own = local[span.chunk], kept[local[span.chunk]]
        if span.kind == "F":
            alive[index] += 1
            loss = own.logits + own.loss_peak > 0
            logits = _logits(alive, kept) + own.loss_peak
            yield _Level(span.start, "loss" if loss else "forward", tuple(alive), logits, beside.loss if loss else 0.0)
        else:
            yield _Level(span.start, moment, tuple(alive), _logits(alive, kept, used=1), needs)
            alive[index] -= span.kind != "B"
        if after is None:
            yield _Level(span.end, "gradient_reduction", tuple(alive), 0.0, beside.reduction)
            yield _Level(span.end, "optimizer", tuple(alive), 0.0, beside.stepping)
        elif after.start > span.end:
            yield _Level(span.end, "forward", tuple(alive), _logits(alive, kept, used=span.kind != "F"), 0.0)


def _logits(alive: Sequence[int], kept: Sequence[KeptChunk], *, used: int = 0) -> float:
    """Logits of the micro-batches in flight; ``used`` of each chunk's have gone into a backward.

    While weight gradients are owed, the gradient of the logits waits for them in the place of the logits.
    """
    return sum(max(0, n - used) * k.logits for n, k in zip(alive, kept, strict=True))
