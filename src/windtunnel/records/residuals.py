"""How far measured peaks lie from projected ones, by framework: what the intervals of the memory model are made of."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from math import sqrt
from typing import NamedTuple

from windtunnel.calibration.intervals import TAILS
from windtunnel.catalog.calibration import evidence
from windtunnel.job.record import Record
from windtunnel.projection.memory import project_memory
from windtunnel.records.compare import read_bytes

FAMILY = {"megatron-core": "megatron", "megatron-bridge": "megatron", "nemo": "megatron"}
"""Frameworks whose layers and optimizer are one code; others stand for themselves."""
ROUNDING = 60 * 1024**2
"""Bytes of difference that count as none: workspaces of small models."""


class Residuals(NamedTuple):
    """Measured over projected peak that four runs of five lie between, and the runs and sources that say so."""

    low: float
    high: float
    runs: int
    sources: int


def memory_residuals(records: Iterable[Record]) -> Mapping[tuple[str, bool], Residuals]:
    """By family of frameworks and whether the model is a mixture of experts; every source has one weight.

    Runs without a bar, doubtful ones, and FSDP that stays gathered under a pipeline, which has a constant of its own,
    say nothing. Where allocated bytes were read, the allocator's spread is added: independent spreads, by squares.
    """
    doubtful = evidence().doubtful_memory.keys()
    ratios: dict[tuple[str, bool], list[tuple[float, str]]] = defaultdict(list)
    spread: dict[tuple[str, bool], float] = {}
    for record in records:
        measured, job = record.measured.peak_memory, record.job
        bar = record.memory_bar or record.bar
        if measured is None or bar in ("trend", "fits") or {record.id, record.series} & doubtful or _gathered(record):
            continue
        key = (FAMILY.get(job.software.framework, job.software.framework), job.model.is_moe)
        projected = read_bytes(record, project_memory(job))
        ratios[key].append((1.0 if abs(measured - projected) <= ROUNDING else measured / projected, record.file))
        spread[key] = job.constants.memory.reserved_spread - 1 if record.memory_kind == "allocated" else 0.0
    return {key: _between(found, spread[key]) for key, found in ratios.items()}


def _gathered(record: Record) -> bool:
    plan, traits = record.job.plan, record.job.software.traits
    return traits.unsharded_under_pipeline and plan.sharding.shards_parameters and plan.parallel.pp > 1


def _between(found: list[tuple[float, str]], spread: float) -> Residuals:
    number = Counter(source for _, source in found)
    weighed = sorted((ratio, 1 / number[source]) for ratio, source in found)
    low, high = (_quantile(weighed, share) for share in (TAILS[0], 1 - TAILS[0]))
    wide = (sqrt(min(low - 1, 0.0) ** 2 + spread**2), sqrt(max(high - 1, 0.0) ** 2 + spread**2))
    return Residuals(1 - wide[0], 1 + wide[1], len(found), len(number))


def _quantile(weighed: list[tuple[float, float]], share: float) -> float:
    """The least value up to which a ``share`` of the weight lies."""
    due, reached = share * sum(weight for _, weight in weighed), 0.0
    for value, weight in weighed:
        reached += weight
        if reached >= due * (1 - 1e-9):
            return value
    return weighed[-1][0]
