"""Traces of real jobs held against the Trace Event Format, field by field, and a very long one against time and memory.

https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import json
import tracemalloc
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from math import isfinite
from time import process_time
from typing import Any

import pytest

from windtunnel.job import Job
from windtunnel.memory.over_time import Point, memory_over_time
from windtunnel.projection.project import project
from windtunnel.projection.result import Projection
from windtunnel.report.trace import trace_pieces
from windtunnel.step.streams import COMPUTE, StreamSpan, step_streams

Event = dict[str, Any]
MakeJob = Callable[[dict[str, Any]], Job]

STAGES = {"cluster.num_accelerators": 32, "plan.parallel": {"tp": 1, "pp": 4}}
JOBS: dict[str, dict[str, Any]] = {
    "one stage": {},
    "fsdp": {"plan.sharding.strategy": "fsdp", "software.framework": "torchtitan"},
    "recompute": STAGES | {"plan.pipeline": {"schedule": "1f1b"}, "plan.recompute": {"policy": "full"}},
    "interleaved": STAGES | {"plan.pipeline": {"schedule": "interleaved_1f1b", "virtual_stages": 2}},
    "zero bubble": STAGES | {"plan.pipeline": {"schedule": "zb_h1"}},
    "along a V": STAGES | {"plan.pipeline": {"schedule": "zbv"}},
    "pairs": STAGES | {"plan.pipeline": {"schedule": "1f1b_ep_overlap"}},
    "both ends": STAGES | {"plan.pipeline": {"schedule": "dualpipe"}},
}
FIELDS = {
    "M": {"name", "ph", "pid", "tid", "ts", "args"},
    "X": {"name", "cat", "ph", "pid", "tid", "ts", "dur", "args"},
    "C": {"name", "ph", "pid", "tid", "ts", "args"},
}
"""Exactly what each kind of event has here: metadata, complete, counter."""


@pytest.fixture(scope="module", params=JOBS.values(), ids=JOBS)
def projected(request: pytest.FixtureRequest, make_job: MakeJob) -> Projection:
    return project(make_job(request.param))


@pytest.fixture(scope="module")
def document(projected: Projection) -> dict[str, Any]:
    streams = step_streams(projected.job, projected.costs, projected.timeline)
    memory = memory_over_time(projected.job, projected.timeline)

    def refuse(constant: str) -> float:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads("".join(trace_pieces(projected, streams, memory)), parse_constant=refuse)


@pytest.fixture(scope="module")
def events(document: dict[str, Any]) -> list[Event]:
    return document["traceEvents"]


def of(events: list[Event], phase: str) -> list[Event]:
    return [event for event in events if event["ph"] == phase]


def test_the_object_form_of_the_format(document):
    assert set(document) == {"displayTimeUnit", "otherData", "traceEvents"}
    assert document["displayTimeUnit"] in ("ms", "ns")


def test_every_event_has_the_fields_of_its_kind_and_no_other(events):
    for event in events:
        assert set(event) == FIELDS[event["ph"]]
        assert isinstance(event["name"], str)
        assert event["name"]
        assert type(event["pid"]) is type(event["tid"]) is int
        assert isinstance(event["args"], dict)
        for key in ("ts", "dur"):
            assert isfinite(event.get(key, 0))
            assert event.get(key, 0) >= 0


def test_one_named_process_a_rank_and_one_named_thread_a_stream(projected, events):
    names: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for event in of(events, "M"):
        names[event["name"]].append((event["pid"], event["tid"], event["args"].get("name")))
    ranks = range(len(projected.timeline.spans))
    assert [pid for pid, _, _ in names["process_name"]] == list(ranks)
    assert len({name for _, _, name in names["process_name"]}) == len(ranks)
    assert all(count == 1 for count in Counter((pid, tid) for pid, tid, _ in names["thread_name"]).values())
    assert all(count == 1 for count in Counter((pid, name) for pid, _, name in names["thread_name"]).values())
    threads = {(pid, tid): name for pid, tid, name in names["thread_name"]}
    assert {(event["pid"], event["tid"]) for event in of(events, "X")} == set(threads)
    for event in of(events, "X"):
        assert event["cat"].replace("_", " ") == threads[event["pid"], event["tid"]]
    sorted_by = [event for event in of(events, "M") if event["name"].endswith("sort_index")]
    assert all(type(event["args"]["sort_index"]) is int for event in sorted_by)
    assert len(sorted_by) == len(ranks) + len(threads)


def test_a_thread_does_one_thing_at_a_time_in_order(events):
    threads: dict[tuple[int, int], list[Event]] = defaultdict(list)
    for event in of(events, "X"):
        threads[event["pid"], event["tid"]].append(event)
    for thread in threads.values():
        for before, after in pairwise(thread):
            assert round(before["ts"] + before["dur"], 3) <= after["ts"]


def test_times_are_microseconds_of_the_step(projected, events):
    end = max(event["ts"] + event["dur"] for event in of(events, "X"))
    assert end == pytest.approx(projected.step_time * 1e6, abs=0.01)
    compute = [event for event in of(events, "X") if (event["pid"], event["cat"]) == (0, COMPUTE)]
    assert sum(event["dur"] for event in compute) == pytest.approx(
        projected.timeline.busy(0) * 1e6, abs=0.001 * len(compute)
    )


def test_memory_is_a_counter_of_numbers_from_the_start_to_the_end(projected, events):
    series: dict[int, list[Event]] = defaultdict(list)
    for event in of(events, "C"):
        series[event["pid"]].append(event)
    assert set(series) == set(range(len(projected.timeline.spans)))
    for rank, points in series.items():
        assert len({event["name"] for event in points}) == 1
        assert all(list(event["args"]) == ["GiB"] and event["args"]["GiB"] >= 0 for event in points)
        assert all(before["ts"] <= after["ts"] for before, after in pairwise(points))
        assert points[-1]["ts"] == pytest.approx(projected.step_time * 1e6, abs=0.01)
        peak = projected.memory.stages[rank].allocated / 2**30
        assert max(event["args"]["GiB"] for event in points) == pytest.approx(peak, abs=1e-3)


def long_streams(stages: int, each: int) -> Iterator[tuple[StreamSpan, ...]]:
    for rank in range(stages):
        yield tuple(StreamSpan(rank, COMPUTE, "forward", 0.001 * i, 0.001 * (i + 1), i, rank) for i in range(each))


def test_a_long_trace_needs_the_memory_of_one_stage(projection):
    """Written as it is made: four stages peak where two do."""

    def peak(stages: int) -> int:
        tracemalloc.start()
        events = sum(
            piece.count('"ph":"X"')
            for piece in trace_pieces(projection, long_streams(stages, 5_000), [[Point(0.0, 2.0**30)]] * stages)
        )
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert events == stages * 5_000
        return most

    projection = replace(projection, memory=replace(projection.memory, stages=projection.memory.stages * 2))
    assert peak(4) < 2.2 * peak(2)  # while one stage is written the next is made


def test_two_hundred_thousand_spans_take_seconds(projection):
    begun = process_time()
    memory = [[Point(0.0, 2.0**30)]] * 2
    text = sum(map(len, trace_pieces(projection, long_streams(2, 100_000), memory)))
    assert text > 200_000 * 100
    assert process_time() - begun < 20
