"""A step in the Trace Event Format, for Perfetto and chrome://tracing: a process a rank, a thread a stream.

https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU (metadata, complete, counter events).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from windtunnel.memory.over_time import Point
from windtunnel.ops.op import Phase
from windtunnel.projection.result import Projection, Provenance
from windtunnel.report.figures import provenance_words
from windtunnel.step.streams import COMPUTE, GATHER, OPTIMIZER, P2P, REDUCE, STRAGGLERS, StreamSpan

Event = dict[str, Any]

_MEMORY = "allocated memory, GiB"


ChunkEvidence = Sequence[Mapping[Phase, Provenance]]
"""By global chunk and phase, the shares of its seconds by where they come from; empty where all are simulated."""


def trace_document(
    projection: Projection,
    streams: Iterable[Sequence[StreamSpan]],
    memory: Sequence[Sequence[Point]],
    evidence: ChunkEvidence = (),
) -> dict[str, Any]:
    """The whole trace as one object; ``streams`` and ``memory`` are by stage. Times are microseconds."""
    return {**_head(projection), "traceEvents": list(trace_events(projection, streams, memory, evidence))}


def trace_pieces(
    projection: Projection,
    streams: Iterable[Sequence[StreamSpan]],
    memory: Sequence[Sequence[Point]],
    evidence: ChunkEvidence = (),
) -> Iterator[str]:
    """The text of ``trace_document``, an event a line, built as it is written: no step is too long for memory."""
    yield json.dumps(_head(projection))[:-1] + ',"traceEvents":[\n'
    separator = ""
    for event in trace_events(projection, streams, memory, evidence):
        yield separator + json.dumps(event, separators=(",", ":"), allow_nan=False)
        separator = ",\n"
    yield "\n]}\n"


def trace_events(
    projection: Projection,
    streams: Iterable[Sequence[StreamSpan]],
    memory: Sequence[Sequence[Point]],
    evidence: ChunkEvidence = (),
) -> Iterator[Event]:
    """Names first, then what ran, then memory: stage by stage, each thread in order of time.

    Compute says where its seconds come from, as other spans do by the part of the step they belong to.
    """
    for stage, (spans, points) in enumerate(zip(streams, memory, strict=True)):
        rank = projection.memory.stages[stage].rank
        yield _named("process_name", stage, 0, name=f"stage {stage} (rank {rank})")
        yield _named("process_sort_index", stage, 0, sort_index=stage)
        threads = {stream: index for index, stream in enumerate(dict.fromkeys(span.stream for span in spans))}
        for stream, thread in threads.items():
            yield _named("thread_name", stage, thread, name=stream.replace("_", " "))
            yield _named("thread_sort_index", stage, thread, sort_index=thread)
        for span in spans:
            yield _complete(span, stage, threads[span.stream], _known(projection, span, evidence))
        yield from _counters(points, stage, projection.step_time)


def _head(projection: Projection) -> dict[str, Any]:
    return {
        "displayTimeUnit": "ms",
        "otherData": {
            "model": projection.job.model.name,
            "schedule": projection.schedule_name,
            "step_time": projection.step_time,
        },
    }


def _named(what: str, process: int, thread: int, **arguments: Any) -> Event:
    return {"name": what, "ph": "M", "pid": process, "tid": thread, "ts": 0, "args": arguments}


_PHASES: dict[str, Phase] = {"forward": "F", "recompute": "F", "backward": "B", "weight gradients": "W"}
_PARTS = {REDUCE: "dp", GATHER: "dp", OPTIMIZER: "optimizer"}


def _known(projection: Projection, span: StreamSpan, evidence: ChunkEvidence) -> str | None:
    """Where the seconds of a span come from, in words; None where all of the step is simulated."""
    if not evidence:
        return None
    if span.stream == COMPUTE and span.chunk is not None:
        return provenance_words(evidence[span.chunk][_PHASES[span.name]])
    if span.name == STRAGGLERS:
        return provenance_words(projection.evidence["jitter"])
    return provenance_words(projection.evidence[_PARTS.get(span.stream, "pp")])


def _complete(span: StreamSpan, process: int, thread: int, known: str | None) -> Event:
    start, end = _microseconds(span.start), _microseconds(span.end)
    arguments = {"micro-batch": span.microbatch, "chunk": span.chunk, "peer stage": span.peer, "evidence": known}
    return {
        "name": spelled(span),
        "cat": span.stream,
        "ph": "X",
        "pid": process,
        "tid": thread,
        "ts": start,
        "dur": round(end - start, 3),
        "args": {key: value for key, value in arguments.items() if value is not None},
    }


def spelled(span: StreamSpan) -> str:
    """``forward micro-batch 3, chunk 1``; ``send micro-batch 3 to stage 2``."""
    if span.microbatch is None:
        return span.name
    if span.stream.startswith(P2P):
        return f"{span.name} micro-batch {span.microbatch} {'to' if span.name == 'send' else 'from'} stage {span.peer}"
    return f"{span.name} micro-batch {span.microbatch}, chunk {span.chunk}"


def _counters(points: Sequence[Point], process: int, end: float) -> Iterator[Event]:
    """A counter keeps its value until the next; the last is said again where the step ends, so that it is drawn."""
    for time, allocated in (*points, *(Point(end, point.allocated) for point in points[-1:])):
        value = round(allocated / 2**30, 4)
        yield {
            "name": _MEMORY, "ph": "C", "pid": process, "tid": 0, "ts": _microseconds(time), "args": {"GiB": value},
        }  # fmt: skip


def _microseconds(seconds: float) -> float:
    return round(seconds * 1e6, 3)
