"""``KEY=VALUE``: any path of a job, any plain YAML value."""

from __future__ import annotations

import pytest

from windtunnel.catalog.overrides import job_paths, parse_overrides, with_values
from windtunnel.errors import FormatError


def test_values_are_yaml() -> None:
    texts = [
        "plan.parallel.tp=4", "cluster.power_cap=500 W", "plan.parallel.sequence_parallel=false",
        "plan.recompute.modules=[mlp, moe]", "cluster.scale_out={kind: roce}", "plan.moe.capacity_factor=null",
    ]  # fmt: skip
    assert list(parse_overrides(texts).values()) == [4, "500 W", False, ["mlp", "moe"], {"kind": "roce"}, None]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("plan.parallel.tp", "KEY=VALUE"),
        ("=4", "KEY=VALUE"),
        ("plan.parallel.tp=", "value is due"),
        ("plan.paralel.tp=4", r"plan\.parallel\.tp"),
        ("tp=4", r"plan\.parallel\.tp"),
        ("plan.parallel.tp=!!python/name:os.system", "tag"),
        ("plan.parallel.tp=[1", "not YAML"),
        ("plan.parallel.tp=" + "x" * 70_000, "65536"),
    ],
)
def test_what_is_no_override_is_refused(text: str, said: str) -> None:
    with pytest.raises(FormatError, match=said):
        parse_overrides([text])


def test_all_faults_come_at_once() -> None:
    with pytest.raises(FormatError) as refused:
        parse_overrides(["a=1", "b", "plan.parallel.tp="])
    assert len(refused.value.faults) == 3


def test_every_plan_path_is_known() -> None:
    assert {"model", "plan.pipeline.layout", "cluster.scale_up.bandwidth", "run.tokens"} <= set(job_paths())


def test_writing_leaves_the_original_alone_and_turns_names_into_bases() -> None:
    job = {"model": "a", "plan": {"parallel": {"tp": 1}}}
    written = with_values(job, {"plan.parallel.tp": 2, "model.num_layers": 3, "software.date": "2025-02"})
    assert written == {
        "model": {"base": "a", "num_layers": 3}, "plan": {"parallel": {"tp": 2}}, "software": {"date": "2025-02"},
    }  # fmt: skip
    assert job == {"model": "a", "plan": {"parallel": {"tp": 1}}}


def test_a_path_through_a_value_is_refused() -> None:
    with pytest.raises(FormatError, match="mapping"):
        with_values({"plan": 3}, {"plan.parallel.tp": 2})
