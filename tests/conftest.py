"""Jobs to test with: small spellings of real ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import pytest

from windtunnel.job import Job

DENSE: dict[str, Any] = {
    "model": "llama3.1-8b",
    "cluster": {"accelerator": "h100-sxm-80gb", "num_accelerators": 8},
    "software": {"framework": "megatron-core", "date": "2025-06"},
    "plan": {
        "parallel": {"tp": 1, "pp": 1},
        "batch": {"micro_batch_size": 1, "global_batch_size": 64, "sequence_length": 4096},
        "sharding": {"strategy": "zero1"},
    },
}


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with dotted paths of ``changes`` laid over it."""
    result = deepcopy(dict(base))
    for path, value in changes.items():
        *parents, leaf = path.split(".")
        place = result
        for key in parents:
            if not isinstance(place.get(key), dict):
                place[key] = {}
            place = place[key]
        place[leaf] = deepcopy(value)
    return result


@pytest.fixture(scope="session")
def make_job() -> Callable[..., Job]:
    """``make_job({"plan.parallel.tp": 2})``: Llama-3.1 8B on eight H100 with these values changed."""
    from windtunnel.catalog.jobs import job_from_mapping

    def make(changes: Mapping[str, Any] | None = None) -> Job:
        return job_from_mapping(merged(DENSE, changes or {}))

    return make
