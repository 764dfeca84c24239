"""Every tool answers with the pipeline's own figures, and wrong questions with what to do about them."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from agent_builders import BASE, NARROW, bench_of, load, vary

from windtunnel.agent.bench import Bench
from windtunnel.agent.gaps import gaps
from windtunnel.agent.tools import LONGEST, TOOLS, call
from windtunnel.catalog.jobs import load_job
from windtunnel.errors import WindtunnelError
from windtunnel.projection.project import project
from windtunnel.search.examine import Examiner
from windtunnel.search.exhaustive import Exhaustive, Progress
from windtunnel.search.space import Axis, Space, default_space
from windtunnel.search.trial import Outcome, Trial

GIB = 2**30
ANSWERED: dict[str, dict[str, Any]] = {
    "evaluate": {"changes": {"plan.parallel.tp": 4}},
    "memory": {"changes": {}},
    "sweep": {"axes": {"plan.parallel.tp": [1, 2, 4], "plan.recompute": [{"policy": "none"}, {"policy": "full"}]}},
    "axes": {},
    "history": {"show": "best"},
    "sensitivity": {"changes": {"plan.parallel.tp": 4}},
    "explain": {"changes": {}},
    "compare": {"first": {}, "second": {"plan.parallel.tp": 4}},
    "stages": {"changes": {}},
    "scratchpad": {"text": "remember"},
}


@pytest.fixture(scope="module")
def bench() -> Bench:
    made = bench_of(oracle="simulated")
    for number, changes in enumerate(({}, {"plan.parallel.tp": 4}, {"plan.parallel.tp": 3}, {"plan.parallel.pp": 1})):
        made.trials.append(tried(number, changes))
    return made


def tried(number: int, changes: dict[str, Any], factor: float = 1.0) -> Trial:
    try:
        answer = project(load(changes))
    except WindtunnelError as error:
        return Trial(
            number=number, proposer="t", reason="r", changes=changes, outcome=Outcome(status="illegal", why=str(error))
        )
    outcome = Outcome(status="ok", step_time=answer.step_time * factor, peak_device=answer.memory.peak.device)
    seconds = answer.step_time * factor
    return Trial(number=number, proposer="t", reason="r", changes=changes, outcome=outcome, values=(seconds,))


@pytest.mark.parametrize("name", TOOLS)
def test_a_tool_answers_in_bounded_json_and_its_schema_takes_the_question(name: str, bench: Bench) -> None:
    tool = TOOLS[name]
    jsonschema.Draft202012Validator.check_schema(tool.schema)
    jsonschema.validate(ANSWERED[name], tool.schema)
    answer = call(tool, bench, ANSWERED[name])
    assert "error" not in answer
    assert len(json.dumps(answer, allow_nan=False)) <= LONGEST
    assert len(tool.words) > 30


@pytest.mark.parametrize("name", TOOLS)
def test_wrong_arguments_are_answered_with_path_rule_and_remedy(name: str, bench: Bench) -> None:
    for wrong in (
        {**ANSWERED[name], "wrong": 1},
        {"changes": 3, "axes": 3, "show": 3, "text": 3, "first": 3},
        [],
        None,
        "x",
    ):
        (fault, *_) = call(TOOLS[name], bench, wrong)["error"]
        assert fault["path"]
        assert fault["rule"]
        assert fault["remedy"]


def test_evaluate_says_what_project_says(bench: Bench) -> None:
    found = call(TOOLS["evaluate"], bench, {"changes": {"plan.parallel.tp": 4}})
    answer = project(load({"plan.parallel.tp": 4}))
    assert found["step_time_s"] == pytest.approx(answer.step_time, rel=1e-4)
    assert found["memory"]["peak_gib"] == pytest.approx(answer.memory.peak.device / GIB, abs=0.01)
    assert sum(found["seconds"].values()) == pytest.approx(answer.step_time, rel=1e-3)
    before = bench.trials[0].outcome.step_time
    assert float(found["step_time_against_baseline"].rstrip(" %")) == pytest.approx(
        100 * (answer.step_time / before - 1), abs=0.01
    )


def test_evaluate_asks_what_other_hardware_would_give(bench: Bench) -> None:
    found = call(TOOLS["evaluate"], bench, {"changes": {"cluster.accelerator": "h200-sxm-141gb"}})
    other = load_job(BASE, set={"cluster.accelerator": "h200-sxm-141gb"})
    assert found["step_time_s"] == pytest.approx(project(other).step_time, rel=1e-4)
    assert "no trial" in found["what_if"]


def test_an_illegal_plan_is_answered_with_the_nearest_repairs(bench: Bench) -> None:
    found = call(TOOLS["evaluate"], bench, {"changes": {"plan.parallel.tp": 3}})
    assert found["legal"] is False
    repairs = [fault["remedy"] for fault in found["faults"]]
    assert any("plan.parallel.tp = 2" in repair for repair in repairs)


def test_repairs_of_a_plan_that_does_not_fit_make_it_fit(bench: Bench) -> None:
    changes = {"plan.parallel.tp": 1, "plan.parallel.pp": 1, "plan.batch.micro_batch_size": 4}
    found = call(TOOLS["memory"], bench, {"changes": changes})
    assert found["verdict"] == "oom"
    assert found["repairs"]
    for repair in found["repairs"]:
        assert project(load({**changes, **repair["changes"]})).memory.verdict == "fits"


def test_a_sweep_is_the_exhaustive_search_of_its_sub_space(bench: Bench) -> None:
    axes = {path: list(values) for path, values in NARROW.items()}
    found = call(TOOLS["sweep"], bench, {"axes": axes, "top": 5})
    progress = Progress()
    space = Space(tuple(Axis(path, tuple(values)) for path, values in axes.items()))
    Exhaustive(examiner=Examiner(job=load({}), space=space, vary=vary, top=5)).run(
        progress, lambda: False, lambda: None
    )
    assert found["complete"] is True
    assert (found["plans"], found["legal"], found["fit"]) == (progress.enumerated, progress.legal, progress.evaluated)
    assert [plan["step_time_s"] for plan in found["fastest"]] == [
        pytest.approx(plan.step_time, rel=1e-4) for plan in progress.found
    ]
    for plan in found["fastest"]:
        assert project(load(plan["changes"])).step_time == pytest.approx(plan["step_time_s"], rel=1e-4)


def test_ten_thousand_plans_are_one_question() -> None:
    bench = bench_of(space=default_space(load({})))
    inner = {path: list(values) for path, values in bench.space.inner.items() if path != "plan.sharding.shard_size"}
    grid = {
        "plan.parallel.tp": [1, 2, 4],
        "plan.parallel.pp": [1, 2, 4],
        "plan.batch.micro_batch_size": [1, 2],
        "plan.pipeline.virtual_stages": [1, 2, 4],
        "plan.pipeline.schedule": ["1f1b", "interleaved_1f1b"],
    }
    axes = {**grid, **inner}
    found = call(TOOLS["sweep"], bench, {"axes": axes, "top": 3})
    assert found["plans"] > 10_000
    assert found["complete"] is True
    assert len(found["fastest"]) == 3


@pytest.mark.parametrize(
    "axes",
    [
        {"plan.parallel.tp": list(range(1, 1000))},
        {"plan.parallel.tp": ["x", 2]},
        {"plan.recompute": ["full"]},
        {"plan.parallel.pp": [2.5]},
        {"plan.nothing": [1]},
        {f"plan.parallel.{name}": [1, 2, 4, 8, 16, 32, 64] for name in ("tp", "cp", "pp", "ep", "etp")},
        {"plan.pipeline.orders": ["/etc/hostname"]},
    ],
)
def test_a_sweep_that_cannot_be_made_says_why(axes: Any, bench: Bench) -> None:
    answer = call(TOOLS["sweep"], bench, {"axes": axes})
    faults = answer.get("error") or answer["faults"]
    assert all(fault["rule"] and fault["remedy"] for fault in faults)


def test_history_shows_the_best_the_last_the_front_and_the_failures(bench: Bench) -> None:
    best = call(TOOLS["history"], bench, {"show": "best", "top": 2})
    assert (best["trials"], best["calls"]) == (4, 3)
    assert [item["step_time_s"] for item in best["best"]] == sorted(item["step_time_s"] for item in best["best"])
    assert call(TOOLS["history"], bench, {"show": "recent", "top": 1})["recent"][0]["trial"] == 3
    front = call(TOOLS["history"], bench, {"show": "pareto"})["pareto"]
    assert [item["peak_gib"] for item in front] == sorted((item["peak_gib"] for item in front), reverse=True)
    failed = call(TOOLS["history"], bench, {"show": "failed"})["failed"]
    assert failed[0]["status"] == "illegal"


def test_gaps_find_what_the_oracle_adds_to_the_model() -> None:
    """Every plan of tp 4 takes a tenth longer than the model says, all others three percent."""
    bench = bench_of(oracle="run")
    plans: list[dict[str, Any]] = [
        {"plan.parallel.tp": tp, "plan.parallel.pp": pp, "plan.recompute": {"policy": policy}}
        for tp in (1, 2, 4) for pp in (1, 2) for policy in ("none", "full")
    ]  # fmt: skip
    bench.trials = [tried(k, plan, 1.10 if plan["plan.parallel.tp"] == 4 else 1.03) for k, plan in enumerate(plans)]
    found = gaps(bench)
    assert len(found.corrections) == len(plans)
    for plan in plans:
        expected = 1.10 if plan["plan.parallel.tp"] == 4 else 1.03
        assert found.factor(plan) == pytest.approx(expected, rel=0.006)
    assert found.document["gaps"][0]["path"] == "plan.parallel.tp"
    unseen = {**plans[0], "plan.batch.micro_batch_size": 2}
    assert found.promise(unseen) < found.factor(unseen)


def test_compare_attributes_the_difference(bench: Bench) -> None:
    found = call(TOOLS["compare"], bench, {"first": {}, "second": {"plan.parallel.tp": 4}})
    difference = found["second"]["step_time_s"] - found["first"]["step_time_s"]
    assert sum(found["second_minus_first_s"].values()) == pytest.approx(difference, abs=2e-3)


def test_stages_tell_seconds_and_bytes_of_each(bench: Bench) -> None:
    found = call(TOOLS["stages"], bench, {"changes": {}})
    answer = project(load({}))
    assert [stage["device_gib"] for stage in found["stages"]] == [
        pytest.approx(stage.device / GIB, abs=0.01) for stage in answer.memory.stages
    ]
    assert sum(found["layers_of_chunks"]) == 32


def test_the_scratchpad_is_kept(bench: Bench) -> None:
    call(TOOLS["scratchpad"], bench, {"text": "one\ntwo \x1b[0m"})
    assert call(TOOLS["scratchpad"], bench, {})["text"] == "one two [0m"
