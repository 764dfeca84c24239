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
    of = _sections(draft.plan)
    pipeline, offload = of["pipeline"], of["offload"]
    return Plan(
        parallel=Parallel(**of["parallel"]),
        pipeline=Pipeline(
            schedule=pipeline["schedule"],
            virtual_stages=pipeline["virtual_stages"],
            layout=draft.layout,
            microbatch_group_size=pipeline["microbatch_group_size"],
            orders=draft.orders,
        ),
        batch=Batch(**of["batch"]),
        sharding=Sharding(**of["sharding"]),
        precision=Precision(**of["precision"]),
        recompute=recomputed(**of["recompute"], layout=draft.layout, num_mtp_layers=draft.model.num_mtp_layers),
        optimizer=str(draft.plan["optimizer"]),
        moe=MoePlan(**of["moe"]),
        overlap=Overlap(**of["overlap"]),
        context_parallel=ContextParallel(**of["context_parallel"]),
        offload=Offload(**{**offload, "modules": frozenset(offload["modules"])}),
        loss=Loss(**of["loss"]),
        dropout=Dropout(**of["dropout"]),
    )


def _sections(plan: Mapping[str, object]) -> dict[str, dict[str, Any]]:
    """Values by section and name."""
    sections: dict[str, dict[str, Any]] = {}
    for path, value in plan.items():
        section, _, name = path.partition(".")
        sections.setdefault(section, {})[name] = value
    return sections
