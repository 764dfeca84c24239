"""The menu for small models: enumerations, legal moves, one pick a round."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
from agent_builders import bench_of, load, run_study
from pydantic_ai.messages import ModelResponse, TextPart

from windtunnel.agent.choices import MOST, menu, schema_of_menu
from windtunnel.projection.project import project


def picks(messages: list[Any], info: Any) -> Any:
    """The first of the menu, as a grammar would force it."""
    schema = info.model_request_parameters.output_object.json_schema
    properties = schema["properties"]
    pick = {name: properties[name]["enum"][0] for name in ("move", "because", "percent")}
    jsonschema.validate(pick, schema)
    return ModelResponse(parts=[TextPart(json.dumps(pick))])


def test_every_move_on_the_menu_is_legal_fits_and_is_new() -> None:
    bench = bench_of()
    offered = menu(bench)
    assert 1 <= len(offered) <= MOST
    for changes in offered.values():
        assert project(load(changes)).memory.verdict == "fits"
    jsonschema.Draft202012Validator.check_schema(schema_of_menu(offered))


def test_a_small_model_walks_by_single_moves() -> None:
    ran = run_study(picks, choices=True, calls=20)
    own = [trial for trial in ran.study.trials if trial.proposer == "llm"]
    assert ran.llm.failed is None
    assert len(own) >= 5
    assert all(trial.outcome.status == "ok" for trial in own)
    assert len({json.dumps(trial.changes, sort_keys=True) for trial in own}) == len(own)


def test_what_is_not_on_the_menu_is_refused() -> None:
    def strays(messages: list[Any], info: Any) -> Any:
        return ModelResponse(parts=[TextPart(json.dumps({"move": "rm -rf /", "because": "x", "percent": 1}))])

    ran = run_study(strays, choices=True, calls=20)
    assert ran.llm.failed
    assert all(trial.proposer == "seed" for trial in ran.study.trials)
