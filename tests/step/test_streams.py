"""What the streams of a rank do: the timeline spelled out, nothing twice at once, ending where the step ends."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import groupby, pairwise
from typing import Any

import pytest

from windtunnel.cost.simulated import simulated_source
from windtunnel.job import Job
from windtunnel.projection.project import project
from windtunnel.schedule.job_order import job_order
from windtunnel.step.step import StepCosts, run_step, step_costs
from windtunnel.step.streams import COMPUTE, GATHER, P2P, REDUCE, STRAGGLERS, StreamSpan, step_streams
from windtunnel.step.timeline import Timeline

MakeJob = Callable[[dict[str, Any]], Job]
Step = tuple[Job, StepCosts, Timeline, list[tuple[StreamSpan, ...]]]


def pipeline(schedule: str, **more: Any) -> dict[str, Any]:
    return {
        "cluster.num_accelerators": 32,
        "plan.parallel": {"tp": 1, "pp": 4},
        "plan.pipeline": {"schedule": schedule, **more},
    }


JOBS: dict[str, dict[str, Any]] = {
    "one stage": {},
    "1f1b": pipeline("1f1b"),
    "1f1b, full recompute": pipeline("1f1b") | {"plan.recompute": {"policy": "full"}},
    "interleaved": pipeline("interleaved_1f1b", virtual_stages=2),
    "zbv": pipeline("zbv"),
    "pairs": pipeline("1f1b_ep_overlap"),
    "both ends": pipeline("dualpipe"),
    "ddp": pipeline("1f1b") | {"plan.sharding.strategy": "ddp"},
    "fsdp, no pipeline": {"plan.sharding.strategy": "fsdp", "software.framework": "torchtitan"},
    "optimizer on the host": pipeline("1f1b") | {"plan.offload": {"optimizer": "cpu"}},
}


@pytest.fixture(params=JOBS.values(), ids=JOBS)
def step(request: pytest.FixtureRequest, make_job: MakeJob) -> Step:
    return executed(make_job(request.param))


def executed(job: Job) -> Step:
    order = job_order(job)
    costs = step_costs(job, simulated_source(job), order)
    timeline = run_step(costs, order)
    return job, costs, timeline, list(step_streams(job, costs, timeline))


def by_stream(spans: tuple[StreamSpan, ...]) -> dict[str, list[StreamSpan]]:
    found: dict[str, list[StreamSpan]] = defaultdict(list)
    for span in spans:
        found[span.stream].append(span)
    return found


def test_spans_of_a_stream_follow_one_another(step: Step) -> None:
    for rank, spans in enumerate(step[3]):
        assert {span.rank for span in spans} == {rank}
        for stream in by_stream(spans).values():
            assert all(span.start <= span.end for span in stream)
            assert all(before.end <= after.start for before, after in pairwise(stream))


def test_compute_is_the_timeline(step: Step) -> None:
    """Recompute at the head of a backward included, actions tile exactly as they ran."""
    for executed_spans, spans in zip(step[2].spans, step[3], strict=True):
        pieces = groupby(
            by_stream(spans)[COMPUTE], key=lambda s: (s.name == "forward", s.name[0] == "w", s.microbatch, s.chunk)
        )
        found = [(key[2], key[3], group[0].start, group[-1].end) for key, group in ((k, list(g)) for k, g in pieces)]
        assert found == [(s.microbatch, s.chunk, s.start, s.end) for s in executed_spans]


def test_recompute_lasts_what_it_costs(make_job: MakeJob) -> None:
    _, costs, _, streams = executed(make_job(JOBS["1f1b, full recompute"]))
    for spans in streams:
        again = [span for span in spans if span.name == "recompute"]
        assert len(again) == 8
        for span in again:
            assert span.end - span.start == pytest.approx(costs.chunks[span.chunk or 0].backward_input.recompute)
    assert not any(span.name == "recompute" for spans in executed(make_job(JOBS["1f1b"]))[3] for span in spans)


def test_the_last_span_ends_with_the_step(step: Step) -> None:
    projection = project(step[0])
    ends = [max(span.end for span in spans) for spans in step[3]]
    assert max(ends) == pytest.approx(projection.step_time, rel=1e-12)


def test_stragglers_come_last_and_are_what_the_projection_says(make_job: MakeJob) -> None:
    job, _, _, streams = executed(make_job(JOBS["1f1b"]))
    slowest = max(streams, key=lambda spans: max(span.end for span in spans))
    last = max(slowest, key=lambda span: span.end)
    assert last.name == STRAGGLERS
    assert last.end - last.start == pytest.approx(project(job).time.jitter)


def test_what_is_exposed_follows_the_last_backward(step: Step) -> None:
    _, costs, timeline, streams = step
    for rank, spans in enumerate(streams):
        end = timeline.spans[rank][-1].end
        found = by_stream(spans)
        traffic = [*found[REDUCE], *found[GATHER]]
        late, beside = [s for s in traffic if s.exposed], [s for s in traffic if not s.exposed]
        addition = costs.additions[rank]
        assert sum(s.end - s.start for s in late) == pytest.approx(addition.exposed + addition.contention)
        assert all(s.start >= end for s in late)
        assert all(s.end <= end for s in beside)
        assert sum(s.end - s.start for s in beside) <= addition.hidden * (1 + 1e-9)


def test_every_hop_is_sent_and_received_once(step: Step) -> None:
    """A transfer lasts what it is priced at, begins when its action is done, and ends before the next one starts."""
    _job, costs, timeline, streams = step
    ran = {
        (s.kind == "F", s.microbatch, s.chunk): s for spans in timeline.spans for s in spans if s.kind != "W"
    }  # fmt: skip
    moved = [span for spans in streams for span in spans if span.stream.startswith(P2P)]
    assert all(span.end - span.start == pytest.approx(costs.transfer) for span in moved)
    sent = sorted((s.rank, s.peer, s.microbatch, s.start) for s in moved if s.name == "send")
    received = sorted((s.peer, s.rank, s.microbatch, s.start) for s in moved if s.name == "receive")
    assert sent == received
    holder = {key: rank for rank, spans in enumerate(timeline.spans) for key in [
        (s.kind == "F", s.microbatch, s.chunk) for s in spans if s.kind != "W"]}  # fmt: skip
    hops = sum(
        holder[key] != holder[forward, microbatch, chunk + 1 if forward else chunk - 1]
        for key in ran
        for forward, microbatch, chunk in [key]
        if (forward, microbatch, chunk + 1 if forward else chunk - 1) in ran
    )
    assert len(sent) == (hops if costs.transfer > 0 else 0)
    for span in (span for span in moved if span.name == "receive"):
        starts = [ran[forward, span.microbatch or 0, span.chunk or 0].start for forward in (True, False)]
        assert any(start >= span.end * (1 - 1e-9) for start in starts)


def test_one_stage_sends_nothing_and_fsdp_gathers_with_every_micro_batch(make_job: MakeJob) -> None:
    _, _, timeline, streams = executed(make_job(JOBS["fsdp, no pipeline"]))
    found = by_stream(streams[0])
    assert not any(stream.startswith(P2P) for stream in found)
    for stream, kinds in ((GATHER, ("F", "BW")), (REDUCE, ("BW",))):
        beside = [(span.microbatch, span.start) for span in found[stream] if span.microbatch is not None]
        assert beside == [(s.microbatch, s.start) for s in timeline.spans[0] if s.kind in kinds]


def test_sharded_optimizers_also_gather(make_job: MakeJob) -> None:
    def names(job: Job, stream: str) -> set[str]:
        return {span.name for span in by_stream(executed(job)[3][0])[stream]}

    assert not names(make_job(JOBS["ddp"]), GATHER)
    assert names(make_job(JOBS["1f1b"]), GATHER)
    assert all("reduction" in name or "slowed" in name for name in names(make_job(JOBS["1f1b"]), REDUCE))


def test_gathering_is_a_part_of_the_traffic(step: Step) -> None:
    """Each half of what is exposed and of what is hidden has a stream, and the two sum to what was priced."""
    job, costs, _, streams = step
    for rank, spans in enumerate(streams):
        addition, found = costs.additions[rank], by_stream(spans)
        gathered = sum(span.end - span.start for span in found[GATHER] if span.exposed)
        assert gathered == pytest.approx(addition.exposed_gather, abs=1e-12)
        assert 0 <= addition.exposed_gather <= addition.exposed * (1 + 1e-9)
        assert 0 <= addition.hidden_gather <= addition.hidden * (1 + 1e-9) + 1e-12
        if not job.plan.sharding.shards_optimizer:
            assert not found[GATHER]


def test_parameters_are_gathered_after_the_optimizer_that_stepped_them(make_job: MakeJob) -> None:
    spans = executed(make_job(JOBS["1f1b"] | {"plan.overlap.param_gather": False}))[3][0]
    stepped = next(span for span in spans if span.name == "optimizer")
    gathered = next(span for span in spans if span.stream == GATHER and span.exposed)
    assert gathered.start >= stepped.end
