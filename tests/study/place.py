"""A small job on two ranks of a CPU and the two dozen plans it may run under."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "hybrid"))

from jobs import CPU_CORE, DENSE

from windtunnel.catalog.dump import job_to_mapping
from windtunnel.catalog.jobs import load_job
from windtunnel.errors import WindtunnelError
from windtunnel.job.job import Job
from windtunnel.store.journal import key_of

JOB: dict[str, Any] = {
    "model": DENSE,
    "cluster": {"accelerator": CPU_CORE, "num_accelerators": 2, "accelerators_per_node": 2},
    "software": {"framework": "torchtitan", "date": "2026-06", "attention": "sdpa"},
    "plan": {
        "parallel": {},
        "sharding": {"strategy": "ddp"},
        "overlap": {"grad_reduce": True, "param_gather": False},
        "precision": {"compute": "fp32", "grad_reduce": "fp32"},
        "batch": {"micro_batch_size": 1, "global_batch_size": 8, "sequence_length": 128},
        "recompute": {"policy": "none"},
    },
}
AXES: dict[str, list[Any]] = {
    "plan.parallel.tp": [1, 2],
    "plan.parallel.pp": [1, 2],
    "plan.pipeline.schedule": ["1f1b", "zbv"],
    "plan.pipeline.virtual_stages": [1, 2],
    "plan.batch.micro_batch_size": [1, 2, 4],
    "plan.sharding.strategy": ["ddp", "fsdp"],
}
PINNED: dict[str, Any] = {
    "plan.recompute": {"policy": "none"},
    "plan.overlap.grad_reduce": True,
    "plan.overlap.param_gather": False,
    "plan.offload.optimizer": "none",
}
"""Axes of the default space that real runs here do not have."""


def vary(changes: Mapping[str, Any]) -> Job:
    return load_job(JOB, set=dict(changes), repairs=False)


def key(job: Job) -> str:
    return key_of(job_to_mapping(job))


def plans() -> dict[str, Job]:
    """Every legal plan of the axes, once."""
    found = {}
    for values in product(*AXES.values()):
        try:
            job = vary(dict(zip(AXES, values, strict=True)))
        except WindtunnelError:
            continue
        found.setdefault(key(job), job)
    return found


def program(job: Job) -> str:
    """What ranks execute under a plan: without replicas a strategy of sharding shards nothing, and plans that differ in
    it alone are one program."""
    plan = job.plan
    kind = f"tp {plan.parallel.tp}" if plan.parallel.tp > 1 else plan.pipeline.schedule
    kind = plan.sharding.strategy if plan.parallel.dp > 1 else kind
    return f"{kind}, micro-batch {plan.batch.micro_batch_size}"
