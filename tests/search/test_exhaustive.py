"""The exhaustive search: exact where it says exact, bounded where it says bounded, and right where it certifies."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import pytest

from windtunnel.errors import WindtunnelError
from windtunnel.job import Job
from windtunnel.projection.choices import RECOMPUTE, SHARD_SIZE, Variant
from windtunnel.projection.project import project
from windtunnel.search.answer import attribution, changed, sensitivity
from windtunnel.search.examine import Examiner
from windtunnel.search.exhaustive import Exhaustive, Plan, Progress, pareto
from windtunnel.search.inner import choices_of, kernels_of, recomputes_of
from windtunnel.search.minimum import infeasible, minimum_accelerators
from windtunnel.search.points import LEAST
from windtunnel.search.space import (
    EVEN,
    INNER,
    LAYOUT,
    Axis,
    Space,
    default_space,
    possible,
)

MakeJob = Callable[[dict[str, Any]], Job]

SMALL: dict[str, Any] = {
    "model": "llama3.1-8b",
    "cluster.num_accelerators": 16,
    "plan.parallel": {"tp": 2, "pp": 2},
    "plan.batch": {"micro_batch_size": 1, "global_batch_size": 64, "sequence_length": 4096},
}


def never() -> bool:
    return False


def nothing() -> None:
    return None


def varying(make_job: MakeJob, base: dict[str, Any]) -> Callable[[Mapping[str, Any]], Job]:
    def vary(changes: Mapping[str, Any]) -> Job:
        named = {path for path in changes if path.startswith("plan.parallel.")}
        start = {path: value for path, value in base.items() if not (named and path == "plan.parallel")}
        parallel = {} if named == set() else {f"plan.parallel.{k}": v for k, v in base["plan.parallel"].items()}
        return make_job({**start, **parallel, **changes})

    return vary


def brute_force(space: Space, vary: Callable[[Mapping[str, Any]], Job]) -> float | None:
    """The fastest fitting plan by projecting every combination."""
    best = None
    for values in product(*(axis.values for axis in space.axes)):
        try:
            answer = project(vary(dict(zip((axis.path for axis in space.axes), values, strict=True))))
        except WindtunnelError:
            continue
        if answer.memory.verdict == "fits" and (best is None or answer.step_time < best):
            best = answer.step_time
    return best


@pytest.mark.parametrize("seed", range(30))
def test_the_certified_plan_is_the_best_of_a_random_space(make_job: MakeJob, seed: int) -> None:
    generator = random.Random(seed)
    pick = generator.choice
    base = {
        **SMALL,
        "model": pick(["llama3.1-8b", "llama3.2-1b", "qwen3-30b-a3b"]),
        "cluster.num_accelerators": pick([8, 16]),
        "plan.parallel": {"tp": 1, "pp": 1},
        "plan.sharding.strategy": "zero1",
    }
    vary = varying(make_job, base)
    job = make_job(base)
    space = Space(
        (
            Axis("plan.parallel.tp", tuple(generator.sample([1, 2, 4], 2))),
            Axis("plan.parallel.pp", tuple(generator.sample([1, 2, 4], 2))),
            Axis("plan.pipeline.virtual_stages", (1, 2)),
            Axis("plan.batch.micro_batch_size", tuple(generator.sample([1, 2, 4], 2))),
            Axis("plan.recompute", ({"policy": "none"}, {"policy": "full"}, {"policy": "block", "num_layers": 2})),
            Axis("plan.overlap.tp_comm", (True, False)),
            Axis("plan.sharding.strategy", ("ddp", "zero1")),
            Axis("plan.overlap.grad_reduce", (True, False)),
        )
    )
    progress = Progress()
    Exhaustive(examiner=Examiner(job=job, space=space, vary=vary)).run(progress, never, nothing)
    assert progress.certified
    expected = brute_force(space, vary)
    if expected is None:
        assert progress.best is None
    else:
        assert progress.best is not None
        assert progress.best.step_time == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("framework", ["megatron-core", "torchtitan", "deepspeed"])
def test_what_may_run_is_what_the_rules_say(make_job: MakeJob, framework: str) -> None:
    """Plans are ruled in and out in classes; asked one by one, the rules let as many run."""
    base = {
        **SMALL, "model": "qwen3-30b-a3b", "plan.parallel": {"tp": 1, "pp": 1, "ep": 1},
        "software": {"framework": framework},
    }  # fmt: skip
    job, vary = make_job(base), varying(make_job, base)
    own = ({"policy": "none"}, {"policy": "full"}, {"policy": "block", "num_layers": 1}, {"policy": "selective"})
    space = default_space(job).pinned({RECOMPUTE: own, SHARD_SIZE: (1,), LAYOUT: (EVEN,)})
    examiner = Examiner(job=job, space=space, vary=vary)
    points = [point for point in space.grid if possible(job, point)]
    looked_at = 0
    for point in random.Random(5).sample(points, min(12, len(points))):
        plain = {path: value for path, value in point.items() if path != LAYOUT}
        try:
            here = vary({**plain, **{path: value for path, value in LEAST.items() if path in space.inner}})
        except WindtunnelError:
            continue
        recomputes, kernels = recomputes_of(here, space.inner), kernels_of(here, space.inner)
        plans = product(recomputes, kernels, choices_of(here, space.inner))
        allowed = sum(_may_run(vary, {**plain, **Variant(r, k).changes, **choice.changes}) for r, k, choice in plans)
        assert examiner.score(point).legal == allowed, point
        looked_at += 1
    assert looked_at > 2


def _may_run(vary: Callable[[Mapping[str, Any]], Job], changes: Mapping[str, Any]) -> bool:
    try:
        vary(changes)
    except WindtunnelError:
        return False
    return True


def test_a_named_axis_is_looked_at_wherever_it_is_legal(make_job: MakeJob) -> None:
    """Offloading layers is refused beside a pipeline and where all are named: the certificate covers the rest."""
    base = {**SMALL, "plan.parallel": {"tp": 1, "pp": 2}, "software.date": "2025-10"}
    job, vary = make_job(base), varying(make_job, base)
    space = Space((Axis("plan.parallel.pp", (1, 2)), Axis("plan.offload.activations", ("none", 0.5, "full"))))
    progress = Progress()
    Exhaustive(examiner=Examiner(job=job, space=space, vary=vary)).run(progress, never, nothing)
    assert progress.legal == sum(
        _may_run(vary, {"plan.parallel.pp": pp, "plan.offload.activations": share})
        for pp in (1, 2)
        for share in ("none", 0.5, "full")
    )
    assert progress.best is not None
    assert progress.best.step_time == pytest.approx(brute_force(space, vary), rel=1e-9)


def test_rules_that_look_at_a_grid_axis_are_asked_for_each_of_its_values(make_job: MakeJob) -> None:
    """torch FSDP2 in Megatron refuses what other implementations of sharding allow."""
    job, vary = make_job(SMALL), varying(make_job, SMALL)
    space = Space(
        (Axis("plan.sharding.implementation", (None, "fsdp2")), Axis("plan.sharding.strategy", ("zero1", "fsdp")))
    )
    progress = Progress()
    Exhaustive(examiner=Examiner(job=job, space=space, vary=vary)).run(progress, never, nothing)
    plans = [{axis.path: value for axis, value in zip(space.axes, values, strict=True)}
             for values in product(*(axis.values for axis in space.axes))]  # fmt: skip
    assert progress.legal == sum(_may_run(vary, plan) for plan in plans) == 3


@pytest.fixture(scope="module")
def searched(make_job: MakeJob) -> tuple[Job, Space, Callable[[Mapping[str, Any]], Job], Progress]:
    job, vary = make_job(SMALL), varying(make_job, SMALL)
    space = default_space(job)
    progress = Progress()
    Exhaustive(examiner=Examiner(job=job, space=space, vary=vary)).run(progress, never, nothing)
    return job, space, vary, progress


def test_the_best_plan_projects_as_promised_and_fits(searched: Any) -> None:
    job, _, vary, progress = searched
    answer = project(vary(progress.best.changes))
    assert answer.step_time == pytest.approx(progress.best.step_time, rel=1e-9)
    assert answer.memory.verdict == "fits"
    assert answer.step_time <= project(job).step_time


def test_counts_add_up(searched: Any) -> None:
    progress = searched[3]
    assert progress.enumerated == progress.pruned + progress.evaluated
    assert 0 < progress.exactly_timed <= progress.evaluated


def test_the_top_is_ordered(searched: Any) -> None:
    times = [plan.step_time for plan in searched[3].found]
    assert times == sorted(times)
    assert len(times) == 10


def test_the_attribution_sums_to_the_gain(searched: Any) -> None:
    job, _, vary, progress = searched
    baseline = project(job)
    steps = attribution(baseline, changed(job, progress.best.changes, vary), vary)
    assert baseline.step_time + sum(step.delta for step in steps) == pytest.approx(progress.best.step_time, rel=1e-9)


def test_no_legal_neighbour_that_fits_is_faster(searched: Any) -> None:
    _, space, vary, progress = searched
    best = project(vary(progress.best.changes))
    for item in sensitivity(best, progress.best.changes, space, vary):
        assert item.delta is None or item.verdict != "fits" or item.delta >= -1e-9


def test_the_front_trades_time_for_memory(searched: Any) -> None:
    front = pareto(searched[3], 8)
    times, peaks = [point[0] for point in front], [point[1] for point in front]
    assert times == sorted(times)
    assert peaks == sorted(peaks, reverse=True)


def test_a_front_keeps_what_needs_fewer_accelerators() -> None:
    few, many = {"cluster.num_accelerators": 8}, {}
    points = [(4.0, 9.0, few), (2.0, 9.0, many), (3.0, 9.0, many), (5.0, 8.0, many), (6.0, 8.0, few), (7.0, 9.0, few)]
    front = pareto(Progress(front=points), 16)
    assert front == [(2.0, 9.0, many), (4.0, 9.0, few), (5.0, 8.0, many), (6.0, 8.0, few)]


def test_fewer_accelerators_hold_a_small_model(make_job: MakeJob) -> None:
    base = {**SMALL, "model": "llama3.2-1b", "plan.parallel": {"tp": 1, "pp": 1}}
    assert minimum_accelerators(make_job(base), varying(make_job, base), never) == 1


def test_nothing_fits_names_the_constraint_and_what_lifts_it(make_job: MakeJob) -> None:
    base = {**SMALL, "model": "llama3.1-405b", "cluster.num_accelerators": 16, "plan.parallel": {"tp": 8, "pp": 2}}
    job, vary, progress = make_job(base), varying(make_job, base), Progress()
    space = default_space(job).pinned({"plan.parallel.tp": (8,), "plan.parallel.pp": (1, 2)})
    Exhaustive(examiner=Examiner(job=job, space=space, vary=vary)).run(progress, never, nothing)
    assert progress.best is None
    lacking = infeasible(job, progress, vary, never)
    assert lacking.constraint.startswith("memory: the leanest plan needs")


def test_a_stopped_search_keeps_its_best_and_certifies_nothing(make_job: MakeJob) -> None:
    job, progress = make_job(SMALL), Progress()
    examiner = Examiner(job=job, space=default_space(job), vary=varying(make_job, SMALL))
    Exhaustive(examiner=examiner).run(progress, lambda: True, nothing)
    assert not progress.certified


def test_choices_are_distinct_and_divide_their_group(make_job: MakeJob) -> None:
    job = make_job(SMALL)
    options = choices_of(job, default_space(job).inner)
    assert len(set(options)) == len(options)
    assert all((job.plan.parallel.dp * job.plan.parallel.cp) % option.shard_size == 0 for option in options)


def test_pinned_axes_replace_the_default_ones(make_job: MakeJob) -> None:
    space = default_space(make_job(SMALL)).pinned({"plan.parallel.tp": (2,), SHARD_SIZE: (4,)})
    assert {axis.path: axis.values for axis in space.axes}["plan.parallel.tp"] == (2,)
    assert SHARD_SIZE in INNER
    assert space.inner[SHARD_SIZE] == (4,)


def test_a_plan_is_a_value() -> None:
    assert Plan(changes={}, step_time=1.0, peak_device=2.0) == Plan(changes={}, step_time=1.0, peak_device=2.0)
