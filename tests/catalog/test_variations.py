"""A job varied is the job loaded with the same values, refusals included."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from windtunnel.catalog.jobs import load_job
from windtunnel.catalog.variations import (
    LAYOUT,
    MICRO_BATCH,
    ORDER,
    PIPELINE,
    SEQUENCE_PARALLEL,
    TP,
    TP_COMM,
    Variations,
)
from windtunnel.errors import WindtunnelError

SOURCE: dict[str, Any] = {
    "model": "qwen3-30b-a3b",
    "cluster": {"accelerator": "h100-sxm-80gb", "num_accelerators": 32},
    "software": {"framework": "megatron-core", "date": "2025-06"},
    "plan": {
        "parallel": {"tp": 2, "pp": 2},
        "batch": {"micro_batch_size": 1, "global_batch_size": 64, "sequence_length": 4096},
        "sharding": {"strategy": "zero1"},
    },
}
VALUES: dict[str, tuple[Any, ...]] = {
    MICRO_BATCH: (1, 2, 4, 64, 0, -1, True, "2", 1.5, 10**9),
    ORDER: ("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp", "pp-dp-ep-cp-tp", "tp-cp-dp-pp", "tp-tp-ep-dp-pp", 3, None),
    LAYOUT: ("Et*24|t*24L", "Et*12|(t*12|)*2t*12L", "Et*20|t*28L", "Et|L", 3),
    "plan.pipeline.virtual_stages": (1, 2, 3),
    SEQUENCE_PARALLEL: (True, False, None, 1),
    TP_COMM: (False, True, None),
    TP: (1, 2, 4),
    "plan.parallel.ep": (1, 4, 8),
    "plan.parallel.pp": (1, 2, 4, 5),
    "plan.pipeline.schedule": ("1f1b", "interleaved_1f1b", "zbv"),
    "plan.recompute": ({"policy": "none"}, {"policy": "full"}),
}


def outcome(call: Any, *given: Any, **named: Any) -> Any:
    try:
        return call(*given, **named)
    except WindtunnelError as error:
        return type(error), [(fault.path, fault.value, fault.rule) for fault in error.faults]


@pytest.mark.parametrize("scale_batch", [False, True])
@pytest.mark.parametrize("spelled", [{}, {"plan.pipeline.count_head": True}])
def test_varied_is_loaded(scale_batch: bool, spelled: dict[str, Any]) -> None:
    generator, folder = random.Random(11), Path()
    fixed = {"plan.batch.global_batch_size": 128, **spelled}
    vary = Variations(SOURCE, fixed, scale_batch=scale_batch, base_dir=folder)
    legal = 0
    for _ in range(400):
        paths = set(generator.sample(list(VALUES), generator.randint(1, len(VALUES))))
        paths |= set(PIPELINE) if LAYOUT in paths else set()
        further = {path: generator.choice(VALUES[path][: generator.choice([2, 10])]) for path in sorted(paths)}
        expected = outcome(
            load_job, SOURCE, set={**fixed, **further}, scale_batch=scale_batch, base_dir=folder, repairs=False
        )
        assert outcome(vary, further) == expected, further
        legal += not isinstance(expected, tuple)
    assert legal > 5
