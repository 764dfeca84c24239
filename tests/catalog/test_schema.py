"""JSON Schema of the formats."""

from __future__ import annotations

import json

import pytest

from windtunnel.catalog.schema import KINDS, schema
from windtunnel.errors import MissingError


@pytest.mark.parametrize("kind", KINDS)
def test_a_schema_is_json_and_closed(kind: str) -> None:
    document = schema(kind)
    assert json.loads(json.dumps(document)) == document
    assert document["type"] == "object"


def test_the_job_schema_knows_its_keys_and_its_units() -> None:
    document = schema("job")
    assert set(document["properties"]) == {"model", "cluster", "software", "plan", "run"}
    assert set(document["required"]) == {"model", "cluster", "plan"}
    parallel = document["$defs"]["ParallelSection"]["properties"]
    assert set(parallel) == {"tp", "cp", "pp", "ep", "etp", "dp", "sequence_parallel", "order"}
    assert parallel["tp"]["minimum"] == 1
    cap = document["$defs"]["ClusterSection"]["properties"]["power_cap"]["anyOf"][0]
    assert cap["type"] == "string"


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(MissingError, match="job"):
        schema("jobs")
