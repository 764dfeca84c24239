"""What every rank's streams do over a step: compute, transfers between stages, data parallelism, optimizer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from windtunnel.elementwise import Number
from windtunnel.job.job import Job
from windtunnel.schedule.action import Kind
from windtunnel.step.data_parallel import StepAddition
from windtunnel.step.step import StepCosts
from windtunnel.step.timeline import Span, Timeline

COMPUTE, P2P, REDUCE, GATHER, OPTIMIZER = "compute", "p2p", "dp_reduce", "dp_gather", "optimizer"

_NAMES: dict[Kind, str] = {"F": "forward", "B": "backward", "W": "weight gradients", "BW": "backward"}
RECOMPUTE = "recompute"
GRADIENTS, PARAMETERS = "gradient reduction", "parameter gather"
_TRAFFIC = {REDUCE: GRADIENTS, GATHER: PARAMETERS}
STRAGGLERS = "stragglers"

_Key = tuple[bool, int, int]
"""Forward or not, micro-batch, global chunk."""


class StreamSpan(NamedTuple):
    """One thing a stream of a rank does; ``chunk`` is the global chunk, ``peer`` the other rank of a transfer.

    Seconds from the start of the step.
    """

    rank: int
    stream: str
    name: str
    start: float
    end: float
    microbatch: int | None = None
    chunk: int | None = None
    peer: int | None = None
    exposed: bool = False
    """Whether it is traffic that nothing runs beside."""


def step_streams(job: Job, costs: StepCosts, timeline: Timeline) -> Iterator[tuple[StreamSpan, ...]]:
    """Per rank, the spans of its streams, each stream in order of time and without overlap, rank by rank.

    Compute is the timeline, with what a backward re-executes at its head. Transfers last as long as they are priced,
    and those that meet on a rank get streams of their own (``p2p``, ``p2p 2``, …). Data-parallel traffic that is
    hidden runs beside compute: gradients are reduced beside the last backward, parameters gathered beside the first
    forward, both with every micro-batch where layers are sharded. What is exposed of it, and how it slows compute,
    follow the last backward, as they are priced, the gathering of what an optimizer stepped after the optimizer. The
    last span of the slowest rank ends at the step time.
    """
    handed = _handed_on(timeline)
    for rank, spans in enumerate(timeline.spans):
        addition = costs.additions[rank]
        end = spans[-1].end if spans else 0.0
        yield (
            *_compute(rank, spans, costs),
            *_in_lanes(_transfers(rank, timeline, costs.transfer, handed)),
            *_hidden(job, rank, spans, addition),
            *_after(job, rank, end, addition, costs.jitter),
        )


def _compute(rank: int, spans: Iterable[Span], costs: StepCosts) -> Iterator[StreamSpan]:
    for kind, microbatch, chunk, start, end in spans:
        begin = start
        again = costs.chunks[chunk].backward_input.recompute if kind in ("B", "BW") else 0.0
        if again > 0:
            begin = min(end, start + again)
            yield StreamSpan(rank, COMPUTE, RECOMPUTE, start, begin, microbatch, chunk)
        yield StreamSpan(rank, COMPUTE, _NAMES[kind], begin, end, microbatch, chunk)


def _handed_on(timeline: Timeline) -> dict[_Key, tuple[int, float]]:
    """Rank and second at which a result is there; that of an overlapped pair when both are done."""
    overlapped = timeline.order.overlapped or ((),) * len(timeline.spans)
    handed: dict[_Key, tuple[int, float]] = {}
    for rank, (spans, positions) in enumerate(zip(timeline.spans, overlapped, strict=True)):
        paired = set(positions)
        for position, (kind, microbatch, chunk, _, end) in enumerate(spans):
            if kind != "W":
                done = spans[position + 1].end if position in paired else end
                handed[kind == "F", microbatch, chunk] = (rank, done)
    return handed


def _transfers(
    rank: int, timeline: Timeline, seconds: float, handed: dict[_Key, tuple[int, float]]
) -> Iterator[StreamSpan]:
    """What a rank sends after an action, and what it receives for one."""
    if seconds <= 0:
        return
    last = timeline.order.num_chunks - 1
    for kind, microbatch, chunk, _, _ in timeline.spans[rank]:
        if kind == "W":
            continue
        forward = kind == "F"
        before, after = (chunk - 1, chunk + 1) if forward else (chunk + 1, chunk - 1)
        for name, other in (("receive", before), ("send", after)):
            if not 0 <= other <= last:
                continue
            peer, done = handed[forward, microbatch, other]
            if peer != rank:
                start = done if name == "receive" else handed[forward, microbatch, chunk][1]
                yield StreamSpan(rank, P2P, name, start, start + seconds, microbatch, chunk, peer)


def _in_lanes(spans: Iterable[StreamSpan]) -> list[StreamSpan]:
    """The spans, each in the first lane of its stream that is free."""
    ends: list[float] = []
    lanes: list[list[StreamSpan]] = []
    for span in sorted(spans, key=lambda span: span.start):
        lane = next((lane for lane, end in enumerate(ends) if end <= span.start), len(ends))
        if lane == len(ends):
            ends.append(0.0)
            lanes.append([])
        ends[lane] = span.end
        lanes[lane].append(span if lane == 0 else span._replace(stream=f"{span.stream} {lane + 1}"))
    return [span for lane in lanes for span in lane]


def _hidden(job: Job, rank: int, spans: Sequence[Span], addition: StepAddition) -> Iterator[StreamSpan]:
    """Traffic beside compute: with every micro-batch where parameters are gathered for each, else once a step."""
    gather, reduce = _seconds(addition.hidden_gather), _seconds(addition.hidden - addition.hidden_gather)
    if not spans:
        return
    if _by_microbatch(job):
        yield from _beside(rank, spans, gather, GATHER)
        yield from _beside(rank, [span for span in spans if span.kind != "F"], reduce, REDUCE)
        return
    start, end = spans[0].start, spans[-1].end
    if gather > 0:
        yield StreamSpan(rank, GATHER, PARAMETERS, start, min(start + gather, end))
    if reduce > 0:
        yield StreamSpan(rank, REDUCE, GRADIENTS, max(0.0, end - reduce), end)


def _beside(rank: int, spans: Sequence[Span], seconds: float, stream: str) -> Iterator[StreamSpan]:
    """``seconds`` of traffic, shared among ``spans`` as they last."""
    if seconds <= 0:
        return
    share = min(1.0, seconds / sum(span.end - span.start for span in spans))
    for _, microbatch, chunk, start, end in spans:
        yield StreamSpan(rank, stream, _TRAFFIC[stream], start, start + share * (end - start), microbatch, chunk)


def _after(job: Job, rank: int, end: float, addition: StepAddition, jitter: float) -> Iterator[StreamSpan]:
    """What a stage adds after its part of the pipeline, one after the other, and what stragglers make of it all."""
    gather = (GATHER, f"{PARAMETERS}, exposed", _seconds(addition.exposed_gather))
    optimizer = (
        (OPTIMIZER, "optimizer", addition.optimizer),
        (OPTIMIZER, "optimizer offload", addition.offload),
    )
    pieces = (
        (REDUCE, f"{GRADIENTS}, exposed", _seconds(addition.exposed - addition.exposed_gather)),
        (REDUCE, "compute slowed by traffic", addition.contention),
        *((gather, *optimizer) if _by_microbatch(job) else (*optimizer, gather)),
        (OPTIMIZER, STRAGGLERS, (end + addition.total) * (jitter - 1)),
    )
    for stream, name, seconds in pieces:
        if seconds > 0:
            yield StreamSpan(rank, stream, name, end, end + seconds, exposed=stream in _TRAFFIC)
            end += seconds


def _seconds(priced: Number) -> float:
    """A difference of priced seconds; what rounding leaves of nothing is nothing."""
    return max(0.0, float(priced))


def _by_microbatch(job: Job) -> bool:
    return job.plan.sharding.shards_parameters and job.plan.parallel.pp == 1
