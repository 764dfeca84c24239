"""The documents are a contract: their keys, their sums, and that JSON can hold them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from windtunnel.errors import Fault
from windtunnel.job.job import Origin
from windtunnel.job.legality.violation import Repair, Violation
from windtunnel.projection.compare import compare
from windtunnel.projection.result import Assumption, Binding, Explanation, Knob
from windtunnel.report.errors import error_document
from windtunnel.report.json import (
    check_document,
    compare_document,
    elasticity_document,
    memory_document,
    projection_document,
)
from windtunnel.report.plain import plain

KEYS = {
    "job", "origin", "step_time", "tokens_per_second", "tokens_per_second_per_accelerator", "model_flops_per_token",
    "model_flops_per_second_per_accelerator", "mfu", "flops_convention", "peak_flops", "time", "hidden_communication",
    "memory", "parameters", "schedule", "provenance", "uncertainty", "run", "headroom", "explain", "warnings",
}  # fmt: skip
STAGE_KEYS = {
    "stage", "rank", "moment", "in_flight", "weights", "gradients", "master", "moments", "activations", "logits",
    "buffers", "dispatcher", "allocated", "reserved", "overhead", "device",
}  # fmt: skip


def leaves(value):
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in leaves(item)]
    return [leaf for item in value for leaf in leaves(item)] if isinstance(value, list) else [value]


def test_the_keys_of_a_projection(projection):
    document = projection_document(projection)
    assert set(document) == KEYS
    assert set(document["model_flops_per_token"]) == {"causal_half", "full_attention", "hardware", "6nd"}
    assert set(document["memory"]) == {
        "verdict", "capacity", "peak_allocated", "peak_reserved", "peak_device", "peak_stage", "interval",
        "host", "host_checkpoint", "stages",
    }  # fmt: skip
    assert [set(stage) for stage in document["memory"]["stages"]] == [STAGE_KEYS] * 2
    assert set(document["parameters"]) == {"total", "active", "per_stage"}
    assert document["schedule"] == {"name": "1f1b", "bubble_fraction": 0.25, "num_microbatches": 4}
    assert set(document["provenance"]) == {"measured", "interpolated", "anchored", "simulated"}


def test_a_document_is_what_json_reads_back(projection):
    document = projection_document(projection)
    assert json.loads(json.dumps(document, allow_nan=False)) == document


def test_the_parts_of_time_sum_to_the_step(projection):
    document = projection_document(projection)
    assert set(document["time"]["exposed_communication"]) == {"tp", "cp", "ep", "etp", "pp", "dp"}
    assert sum(leaves(document["time"])) == pytest.approx(document["step_time"])


def test_the_classes_of_memory_sum(projection):
    for stage in projection_document(projection)["memory"]["stages"]:
        classes = ("weights", "gradients", "master", "moments", "activations", "logits", "buffers", "dispatcher")
        assert sum(stage[name] for name in classes) == stage["allocated"] <= stage["reserved"]
        assert stage["device"] == stage["reserved"] + stage["overhead"]


def test_peak_and_headroom(projection):
    document = projection_document(projection)
    assert document["memory"]["peak_stage"] == 0
    assert document["memory"]["peak_device"] == 62 * 2**30
    assert document["memory"]["peak_allocated"] == 60 * 2**30
    assert document["headroom"] == 18 * 2**30


def test_warnings_of_job_and_projection_stand_once(projection):
    assert projection_document(projection)["warnings"] == [
        "intermediate sizes are small",
        "attention has no figures on this part",
    ]


def test_an_explanation(projection):
    assert projection_document(projection)["explain"] is None
    explanation = Explanation(
        binding=(Binding(stage=0, term="compute", share=0.6),),
        assumptions=(Assumption(path="plan.overlap.tp_comm", otherwise=False, effect=-0.1),),
        knobs=(Knob(changes=(("plan.parallel.tp", 2), ("plan.parallel.dp", 1)), step_time=1.5, peak_device=1e9),),
    )
    assert projection_document(replace(projection, explanation=explanation))["explain"] == {
        "binding": [{"stage": 0, "term": "compute", "share": 0.6}],
        "assumptions": [{"path": "plan.overlap.tp_comm", "otherwise": False, "effect": -0.1}],
        "knobs": [
            {
                "changes": {"plan.parallel.tp": 2, "plan.parallel.dp": 1},
                "step_time": 1.5,
                "peak_device": 1e9,
                "simulated": 1.0,
            }
        ],
    }


def test_memory(projection):
    document = memory_document(projection)
    assert set(document) == {"memory", "parameters", "origin", "warnings"}
    assert document["memory"] == projection_document(projection)["memory"]


def test_the_terms_of_a_delta_sum(projection):
    faster = replace(projection, step_time=1.5, time=replace(projection.time, bubble=0.1, tp=0.2))
    pair = [projection, faster]
    document = compare_document(pair, compare(pair))
    assert set(document) == {"jobs", "deltas"}
    (delta,) = document["deltas"]
    assert set(delta) == {"from", "to", "step_time", "terms", "peak_device"}
    assert (delta["from"], delta["to"], delta["peak_device"]) == (0, 1, 0.0)
    assert delta["step_time"] == pytest.approx(-0.5)
    assert sum(leaves(delta["terms"])) == pytest.approx(delta["step_time"])


def violation(severity):
    return Violation(
        rule="grid", message="tp must divide", path="plan.parallel.tp", values={"tp": 3, "world": 8},
        repairs=(Repair({"plan.parallel.tp": 4}),), severity=severity,
    )  # fmt: skip


def test_a_job_with_an_error_is_illegal():
    document = check_document([violation("error")], {"dense": {"tp": 3}, "expert": {"ep": 1}}, 4, ())
    assert document["legal"] is False
    assert document["violations"] == [
        {
            "rule": "grid",
            "message": "tp must divide",
            "path": "plan.parallel.tp",
            "values": {"tp": 3, "world": 8},
            "repairs": [{"changes": {"plan.parallel.tp": 4}}],
        }
    ]


def test_a_job_with_a_warning_is_legal():
    document = check_document([violation("warning")], {}, None, (), ("a note",))
    assert document["legal"] is True
    assert document["violations"] == []
    assert document["warnings"] == ["tp must divide", "a note"]


def test_elasticity_and_errors():
    assert elasticity_document((("cluster.peaks", -0.5),)) == [{"path": "cluster.peaks", "value": -0.5}]
    assert error_document("format", [Fault("a.b", "3", "is odd", "make it even")]) == {
        "error": {
            "kind": "format",
            "faults": [{"path": "a.b", "value": "3", "rule": "is odd", "remedy": "make it even"}],
        }
    }


def test_plain_values():
    assert plain({"s": frozenset({"b", "a"}), "t": (1, None)}) == {"s": ["a", "b"], "t": [1, None]}
    assert plain(Origin("p", ("x",), "file", "given")) == {"path": "p", "value": ["x"], "level": "file", "why": "given"}
    with pytest.raises(TypeError, match="no JSON form of object"):
        plain(object())
