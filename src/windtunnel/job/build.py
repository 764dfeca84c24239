"""From a legal draft to the job itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windtunnel.job.constants import Constants
from windtunnel.job.draft import Draft
from windtunnel.job.job import Job
from windtunnel.job.plan import (
    Batch,
    ContextParallel,
    Dropout,
    Loss,
    MoePlan,
    Offload,
    Overlap,
    Parallel,
    Pipeline,
    Plan,
    Precision,
    Sharding,
)
from windtunnel.job.recompute import recomputed


def build(draft: Draft, constants: Constants) -> Job:
    """The job a legal draft describes. A draft without a layout or dp is not legal."""
    return Job(
        model=draft.model,
        cluster=draft.cluster,
        software=draft.software,
        plan=_plan(draft),
        constants=constants,
        run=draft.run,
        origin=draft.origin,
        warnings=draft.warnings,
    )


def _plan(draft: Draft) -> Plan:
    assert draft.layout is not None
    plan = draft.plan
    pipeline = _section(plan, "pipeline")
    offload = _section(plan, "offload")
    return Plan(
        parallel=Parallel(**_section(plan, "parallel")),
        pipeline=Pipeline(
            schedule=pipeline["schedule"],
            virtual_stages=pipeline["virtual_stages"],
            layout=draft.layout,
            microbatch_group_size=pipeline["microbatch_group_size"],
            orders=draft.orders,
        ),
        batch=Batch(**_section(plan, "batch")),
        sharding=Sharding(**_section(plan, "sharding")),
        precision=Precision(**_section(plan, "precision")),
        recompute=recomputed(
            **_section(plan, "recompute"), layout=draft.layout, num_mtp_layers=draft.model.num_mtp_layers
        ),
        optimizer=str(plan["optimizer"]),
        moe=MoePlan(**_section(plan, "moe")),
        overlap=Overlap(**_section(plan, "overlap")),
        context_parallel=ContextParallel(**_section(plan, "context_parallel")),
        offload=Offload(**{**offload, "modules": frozenset(offload["modules"])}),
        loss=Loss(**_section(plan, "loss")),
        dropout=Dropout(**_section(plan, "dropout")),
    )


def _section(plan: Mapping[str, object], name: str) -> dict[str, Any]:
    prefix = f"{name}."
    return {path.removeprefix(prefix): value for path, value in plan.items() if path.startswith(prefix)}
