"""What makes a job fit: the smallest changes, the cheapest in throughput first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from windtunnel.errors import WindtunnelError
from windtunnel.job.job import Job
from windtunnel.projection.choices import Changes
from windtunnel.projection.project import project
from windtunnel.projection.result import Projection
from windtunnel.search.minimum import leanest
from windtunnel.search.points import Vary
from windtunnel.search.remedies import remedies

PAIRED = 8
"""Single changes that are tried in pairs, where none is enough alone: those that save most."""
MOST = 6
"""Changes made together before the attempt is given up."""
LARGEST = 4096
"""Accelerators at which the search for enough of them ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """Changes that make the job fit, with the peak and step time they lead to.

    ``price`` is the share of the throughput of one accelerator that they cost; a negative price is a gain.
    """

    changes: Changes
    peak_device: float
    step_time: float
    price: float


def fit(now: Projection, vary: Vary) -> tuple[Remedy, ...]:
    """Every single change that makes the job fit; pairs where no single one does; then the largest savings together,
    and last the fewest accelerators on which some plan fits.

    The cheapest comes first, more accelerators after everything else. Empty where the job fits as it is, or where
    nothing helps. ``vary`` makes the job with other values, and raises WindtunnelError where they are illegal.
    """
    if now.memory.verdict == "fits":
        return ()
    tried = [item for changes in remedies(now.job) if (item := _try(now, changes, vary)) is not None]
    single = [item for item, verdict in tried if verdict == "fits"]
    if any(not _machine(item.changes) for item in single):
        return _ranked(single)
    saving = sorted((item for item, _ in tried if not _machine(item.changes)), key=lambda item: item.peak_device)
    helpful = [item for item in saving if item.peak_device < now.memory.peak.device]
    several = _fitting(now, _joined(helpful[:PAIRED]), vary) or _together(now, helpful, vary)
    return _ranked([*several, *single]) or _enlarged(now, vary)


SAME_DEVICE = 0.01
"""Relative difference up to which a message's capacity is taken for the catalog's."""


def on_device(job: Job, capacity: float | None, taken: float = 0.0) -> Job:
    """The job on accelerators of ``capacity`` bytes, where that is another device than the job's, less ``taken``: what
    a run was seen to need beyond its plan."""
    accelerator = job.cluster.accelerator
    own = accelerator.hbm_capacity
    has = own if capacity is None or abs(capacity / own - 1) <= SAME_DEVICE else capacity
    other = replace(accelerator, hbm_capacity=has - taken)
    return job if other == accelerator else replace(job, cluster=replace(job.cluster, accelerator=other))


def _machine(changes: Mapping[str, Any]) -> bool:
    return "cluster.num_accelerators" in changes


def _try(now: Projection, changes: Changes, vary: Vary) -> tuple[Remedy, str] | None:
    """A change with its price and verdict, None where it is not legal."""
    try:
        other = project(vary(changes))
    except WindtunnelError:
        return None
    speed = other.tokens_per_second_per_accelerator / now.tokens_per_second_per_accelerator
    peak = other.memory.peak.device
    return Remedy(changes=changes, peak_device=peak, step_time=other.step_time, price=1 - speed), other.memory.verdict


def _fitting(now: Projection, candidates: Iterable[Changes], vary: Vary) -> list[Remedy]:
    tried = (_try(now, changes, vary) for changes in candidates)
    return [item[0] for item in tried if item is not None and item[1] == "fits"]


def _joined(found: list[Remedy]) -> list[Changes]:
    """Pairs that change different things."""
    return [
        {**one.changes, **other.changes}
        for one, other in combinations(found, 2)
        if not one.changes.keys() & other.changes.keys()
    ]


def _together(now: Projection, found: list[Remedy], vary: Vary) -> list[Remedy]:
    """The largest saving, then whatever saves most beside it, until the job fits; then each change that can be spared
    is taken back."""
    changes: Changes = {}
    for item in found:
        if len(changes) >= MOST or changes.keys() & item.changes.keys():
            continue
        attempt = _try(now, {**changes, **item.changes}, vary)
        if attempt is None:
            continue
        changes = attempt[0].changes
        if attempt[1] == "fits":
            return [_spared(now, attempt[0], vary)]
    return []


def _spared(now: Projection, enough: Remedy, vary: Vary) -> Remedy:
    for path in list(enough.changes):
        rest = {key: value for key, value in enough.changes.items() if key != path}
        attempt = _try(now, rest, vary) if rest else None
        if attempt is not None and attempt[1] == "fits":
            enough = attempt[0]
    return enough


def _enlarged(now: Projection, vary: Vary) -> tuple[Remedy, ...]:
    """The fewest accelerators, doubling from the job's own, on which a plan of least memory fits."""
    number = 2 * now.job.cluster.num_accelerators
    while number <= LARGEST:
        changes = leanest(now.job, {"cluster.num_accelerators": number}, vary, lambda: False)
        attempt = None if changes is None else _try(now, changes, vary)
        if attempt is not None:
            return (_spared(now, attempt[0], vary),)
        number *= 2
    return ()


def _ranked(found: Iterable[Remedy]) -> tuple[Remedy, ...]:
    """The cheapest first; of those that differ only in how far they go, the cheapest alone."""
    kept: dict[object, Remedy] = {}
    for item in sorted(found, key=lambda item: (_machine(item.changes), item.price, item.peak_device)):
        kept.setdefault(_kind(item.changes), item)
    return tuple(kept.values())


def _kind(changes: Changes) -> object:
    """What is changed: the paths, of recomputation and schedules also which."""
    recompute = changes.get("plan.recompute", {})
    named = (recompute.get("policy"), *recompute.get("modules", ()))
    return frozenset(changes), named, changes.get("plan.pipeline.schedule")
