"""The trace is what the Trace Event Format says, and the text is the document."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from windtunnel.memory.over_time import Point
from windtunnel.report.trace import spelled, trace_document, trace_pieces
from windtunnel.step.streams import COMPUTE, P2P, REDUCE, StreamSpan

STREAMS = [
    (
        StreamSpan(0, COMPUTE, "forward", 0.0, 0.5, 0, 1),
        StreamSpan(0, COMPUTE, "backward", 1.0, 1.75, 0, 1),
        StreamSpan(0, P2P, "send", 0.5, 0.625, 0, 1, 1),
        StreamSpan(0, REDUCE, "gradient reduction, exposed", 1.75, 2.0, exposed=True),
    ),
    (StreamSpan(1, COMPUTE, "forward", 0.625, 1.0, 0, 2),),
]
MEMORY = [(Point(0.0, 2.0**30), Point(1.75, 2.0**29)), (Point(0.625, 3 * 2.0**30),)]


@pytest.fixture
def events(projection):
    return trace_document(projection, STREAMS, MEMORY)["traceEvents"]


def test_the_text_is_the_document(projection):
    assert json.loads("".join(trace_pieces(projection, STREAMS, MEMORY))) == trace_document(projection, STREAMS, MEMORY)


def test_the_text_is_made_event_by_event(projection):
    """Only so does a long step need no more memory than a short one."""
    pieces = list(trace_pieces(projection, iter(STREAMS), MEMORY))
    assert len(pieces) == len(trace_document(projection, STREAMS, MEMORY)["traceEvents"]) + 2


def test_a_process_is_a_rank_and_a_thread_a_stream(events):
    named = {(e["pid"], e["tid"], e["name"]): e["args"] for e in events if e["ph"] == "M"}
    assert named[0, 0, "process_name"]["name"].startswith("stage 0 (rank ")
    assert named[0, 0, "thread_name"] == {"name": "compute"}
    assert named[0, 1, "thread_name"] == {"name": "p2p"}
    assert named[0, 2, "thread_name"] == {"name": "dp reduce"}
    assert (1, 1, "thread_name") not in named


def test_complete_events_are_the_spans_in_microseconds(events):
    complete = [e for e in events if e["ph"] == "X"]
    assert [(e["pid"], e["ts"], e["ts"] + e["dur"]) for e in complete] == [
        (span.rank, span.start * 1e6, span.end * 1e6) for spans in STREAMS for span in spans
    ]
    assert all(e["dur"] >= 0 for e in complete)


def test_names_are_for_people():
    forward, _, send, reduction = STREAMS[0]
    assert spelled(forward) == "forward micro-batch 0, chunk 1"
    assert spelled(send) == "send micro-batch 0 to stage 1"
    assert spelled(reduction) == "gradient reduction, exposed"
    assert spelled(send._replace(name="receive", stream="p2p 2")) == "receive micro-batch 0 from stage 1"


def test_counters_are_gib_until_the_end_of_the_step(projection, events):
    counters = [(e["pid"], e["ts"], e["args"]["GiB"]) for e in events if e["ph"] == "C"]
    end = projection.step_time * 1e6
    assert counters == [(0, 0.0, 1.0), (0, 1.75e6, 0.5), (0, end, 0.5), (1, 0.625e6, 3.0), (1, end, 3.0)]


def test_every_event_has_what_the_format_asks(events):
    assert all({"name", "ph", "pid", "tid", "ts"} <= set(event) for event in events)
    for pid in (0, 1):
        for tid in range(3):
            thread = [e for e in events if e["ph"] == "X" and (e["pid"], e["tid"]) == (pid, tid)]
            assert all(before["ts"] + before["dur"] <= after["ts"] for before, after in pairwise(thread))
