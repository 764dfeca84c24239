"""The plans of one grid point: distinct kernels, recompute choices and ways to shard, of the values a space names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import Any

from windtunnel.job.job import Job
from windtunnel.job.plan import Chunk, Strategy
from windtunnel.projection.choices import (
    ACTIVATION_OFFLOAD,
    CP_COMM,
    DISPATCHER,
    EP_COMM,
    GRAD_REDUCE,
    OPTIMIZER_OFFLOAD,
    P2P,
    PARAM_GATHER,
    RECOMPUTE,
    SHARD_SIZE,
    SHARDING,
    TP_COMM,
    Choice,
    Kernels,
    Recompute,
)
from windtunnel.search.space import divisors


def kernels_of(job: Job, inner: Mapping[str, Sequence[Any]]) -> tuple[Kernels, ...]:
    """Distinct kernels of one grid point; overlaps with nothing to hide keep the job's value."""
    plan = job.plan
    parallel, overlap = plan.parallel, plan.overlap
    options = {
        "dispatcher": (DISPATCHER, parallel.ep > 1, plan.moe.dispatcher),
        "tp_comm": (TP_COMM, parallel.sequence_parallel, overlap.tp_comm),
        "cp_comm": (CP_COMM, parallel.cp > 1, overlap.cp_comm),
        "ep_comm": (EP_COMM, parallel.ep > 1, overlap.ep_comm),
        "p2p": (P2P, plan.pipeline.virtual_stages > 1, overlap.p2p),
        "offload": (ACTIVATION_OFFLOAD, True, plan.offload.activations),
    }
    values = [
        tuple(SHARES.get(value, value) for value in inner.get(path, (own,))) if applies else (own,)
        for path, applies, own in options.values()
    ]
    return tuple(Kernels(**dict(zip(options, found, strict=True))) for found in product(*values))


SHARES: dict[Any, Any] = {"none": 0.0, "full": 1.0}
"""The words of the job format for a share of activations on the host."""


def recomputes_of(job: Job, inner: Mapping[str, Sequence[Any]]) -> tuple[Recompute | None, ...]:
    """The recompute choices of one grid point; the job's own where the space has none."""
    return distinct(asked_recomputes(inner), job) if RECOMPUTE in inner else (None,)


def asked_recomputes(inner: Mapping[str, Sequence[Any]]) -> tuple[Recompute, ...]:
    """The ``plan.recompute`` sections of a space as choices."""
    return tuple(map(_recompute, inner.get(RECOMPUTE, ())))


def _recompute(section: Mapping[str, Any]) -> Recompute:
    fields: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in section.items()}
    return Recompute(**fields)


def distinct(asked: tuple[Recompute, ...], job: Job) -> tuple[Recompute, ...]:
    """Those that differ in what some layer re-executes, the first of equal ones."""
    return _distinct(asked, job.plan.pipeline.layout, job.model.num_mtp_layers)


@lru_cache(maxsize=1024)
def _distinct(asked: tuple[Recompute, ...], layout: tuple[Chunk, ...], num_mtp_layers: int) -> tuple[Recompute, ...]:
    found: dict[tuple[frozenset[str], ...], Recompute] = {}
    for recompute in asked:
        found.setdefault(recompute.over(layout, num_mtp_layers), recompute)
    return tuple(found.values())


def choices_of(job: Job, inner: Mapping[str, Sequence[Any]]) -> tuple[Choice, ...]:
    """Distinct combinations of the choice axes for one grid point: ddp shards nothing, so it has one size and no
    gathers; the other sizes divide dp · cp. Values that the space does not name are the job's."""
    plan, parallel = job.plan, job.plan.parallel
    return _choices(
        parallel.dp * parallel.cp,
        tuple(inner.get(SHARDING, (plan.sharding.strategy,))),
        tuple(inner.get(SHARD_SIZE, (plan.sharding.shard_size,))),
        tuple(inner.get(GRAD_REDUCE, (plan.overlap.grad_reduce,))),
        tuple(inner.get(PARAM_GATHER, (plan.overlap.param_gather,))),
        tuple(inner.get(OPTIMIZER_OFFLOAD, (plan.offload.optimizer,))),
    )


@lru_cache(maxsize=1024)
def _choices(
    replicas: int,
    strategies: tuple[Strategy, ...],
    asked: tuple[Any, ...],
    reduces: tuple[bool, ...],
    gathers: tuple[bool, ...],
    offloads: tuple[Any, ...],
) -> tuple[Choice, ...]:
    sizes = divisors(replicas) if "divisors" in asked else [size for size in asked if replicas % size == 0]
    found: list[Choice] = []
    for strategy in strategies:
        shards = strategy != "ddp"
        own = (sizes if strategy != "hsdp" else [n for n in sizes if n < replicas]) if shards else [replicas]
        found += [Choice(strategy, *rest) for rest in product(own, reduces, gathers if shards else (False,), offloads)]
    return tuple(found)
