"""How few accelerators hold a job, and what would make an impossible space possible."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from windtunnel.job.job import Job
from windtunnel.memory.interval import residuals
from windtunnel.projection.choices import ACTIVATION_OFFLOAD, GRAD_REDUCE, PARAM_GATHER, RECOMPUTE, Changes
from windtunnel.search.examine import Examiner
from windtunnel.search.exhaustive import Exhaustive, Progress
from windtunnel.search.points import Vary
from windtunnel.search.space import default_space

LEAN: dict[str, tuple[Any, ...]] = {
    "plan.batch.micro_batch_size": (1,),
    RECOMPUTE: ({"policy": "full"},),
    ACTIVATION_OFFLOAD: (0.0,),
    GRAD_REDUCE: (True,),
    PARAM_GATHER: (True,),
}
"""The values that need least memory, whatever they cost."""

Stop = Callable[[], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Infeasible:
    """Why nothing fits, and the smallest single changes that would help."""

    constraint: str
    relaxations: tuple[Changes, ...]


def fits_somewhere(job: Job, changes: Mapping[str, Any], vary: Vary, stop: Stop) -> bool:
    """Whether some plan of least memory fits once ``changes`` are made to the job."""
    return leanest(job, changes, vary, stop) is not None


def leanest(job: Job, changes: Mapping[str, Any], vary: Vary, stop: Stop) -> Changes | None:
    """The first plan of least memory that fits once ``changes`` are made to the job; None where there is none."""
    world = int(changes.get("cluster.num_accelerators", job.cluster.num_accelerators))
    resized = replace(job, cluster=replace(job.cluster, num_accelerators=world))
    space = default_space(resized)
    named = {axis.path for axis in space.axes}
    fixed = {**LEAN, **{path: (value,) for path, value in changes.items()}}
    space = space.pinned({path: values for path, values in fixed.items() if path in named})
    search = Exhaustive(examiner=Examiner(job=resized, space=space, vary=lambda more: vary({**changes, **more})))
    progress = Progress()
    search.run(progress, lambda: stop() or progress.evaluated > 0, lambda: None)
    if progress.evaluated == 0 or progress.smallest is None:
        return None
    return {**changes, **progress.smallest.changes}


def minimum_accelerators(job: Job, vary: Vary, stop: Stop) -> int:
    """The fewest accelerators, halving from the job's own, on which some plan fits; the job's own plan does."""
    fewest = job.cluster.num_accelerators
    while fewest % 2 == 0 and not stop():
        if not fits_somewhere(job, {"cluster.num_accelerators": fewest // 2}, vary, stop):
            break
        fewest //= 2
    return fewest


def infeasible(job: Job, progress: Progress, vary: Vary, stop: Stop) -> Infeasible:
    """The constraint that kills a space without a fitting plan, and what lifts it."""
    if progress.smallest is None:
        return Infeasible(constraint="legality: no plan of the space is legal", relaxations=())
    need, capacity = progress.smallest.peak_device, job.cluster.accelerator.hbm_capacity
    margin = residuals(job)[1]
    constraint = (
        f"memory: the leanest plan needs {need / 2**30:.1f} GiB, {margin:g} times which must be within "
        f"{capacity / 2**30:.1f} GiB"
    )
    world, length = job.cluster.num_accelerators, job.plan.batch.sequence_length
    tried: list[Changes] = [
        {"cluster.num_accelerators": world * 2},
        {"cluster.num_accelerators": world * 4},
        {ACTIVATION_OFFLOAD: 1.0},
        {"plan.precision.optimizer_state": "bf16"},
        {"plan.batch.sequence_length": length // 2},
    ]
    return Infeasible(
        constraint=constraint,
        relaxations=tuple(changes for changes in tried if fits_somewhere(job, changes, vary, stop)),
    )
