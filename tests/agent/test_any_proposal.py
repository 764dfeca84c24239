"""Whatever JSON a model may write as changes: an outcome or an answer, never an exception."""

from __future__ import annotations

import json
from typing import Any

import pytest
from agent_builders import bench_of, load, vary
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from windtunnel.agent.tools import TOOLS, call
from windtunnel.catalog import tool_format as forms
from windtunnel.catalog.overrides import job_paths
from windtunnel.errors import FormatError
from windtunnel.search.mandate import within
from windtunnel.search.screen import Candidate, Screen
from windtunnel.search.trial import Outcome

PLAN = [path for path in job_paths() if path.startswith("plan")]
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 70), st.sampled_from([0, 2**31, -1, 1_000_000]), st.floats(-2, 3),
    st.sampled_from(["none", "full", "zbv", "interleaved_1f1b", "fsdp", "balanced", "even", "Et*32L", "Et*15|t*17L",
                     "E||L", "t" * 40, "tp-cp-ep-dp-pp", "cpu", "bf16", "../x", ""]),
    st.lists(st.integers(-1, 40), max_size=5), st.just({"policy": "block", "num_layers": 3}),
    st.just({"policy": "full", "layers": [0, 31, 32]}), st.dictionaries(st.text(max_size=5), st.integers(), max_size=2),
)  # fmt: skip
CHANGES = st.dictionaries(st.sampled_from(PLAN), VALUES, min_size=1, max_size=4)
BENCH = bench_of(oracle="simulated")
SCREEN = Screen(vary=within(vary, BENCH.space), write=BENCH.proposal)
QUIET = settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))


@QUIET
@given(CHANGES)
def test_the_door_has_an_answer_to_every_plan(changes: dict[str, Any]) -> None:
    found = SCREEN.look(changes)
    assert isinstance(found, Candidate | Outcome)
    if isinstance(found, Outcome):
        assert found.why
    else:
        SCREEN.refusal(found)


@QUIET
@given(CHANGES, st.sampled_from(["evaluate", "memory", "stages"]))
def test_a_tool_has_an_answer_to_every_plan(changes: dict[str, Any], name: str) -> None:
    json.dumps(call(TOOLS[name], BENCH, {"changes": changes}), allow_nan=False)


LEAVES = st.none() | st.booleans() | st.floats() | st.text(max_size=8) | st.integers()
ANYTHING = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)


@QUIET
@given(ANYTHING, st.sampled_from(list(TOOLS)))
def test_any_json_is_arguments_or_a_fault(given_: Any, name: str) -> None:
    answer = forms_read(name, given_)
    assert isinstance(answer, dict) or all(fault.rule and fault.remedy for fault in answer)


def forms_read(name: str, given_: Any) -> Any:
    try:
        return forms.read_arguments(TOOLS[name].form, given_)
    except FormatError as error:
        return error.faults


def test_a_value_nested_without_end_is_refused() -> None:
    deep: Any = 1
    for _ in range(2000):
        deep = [deep]
    with pytest.raises(FormatError, match="nested"):
        forms.read_arguments(forms.EvaluateArguments, {"changes": {"plan.recompute.layers": deep}})
    assert load({}).model.num_layers == 32
