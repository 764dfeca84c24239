"""What calibration sees of ground truth: errors of many records under any constants, and how much each run counts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, log, nan, sqrt

import numpy as np

from windtunnel.calibration.fit import Floats, Mask
from windtunnel.errors import WindtunnelError
from windtunnel.job.record import Record
from windtunnel.projection.project import step_time
from windtunnel.records.compare import speed_pair

MOST_OF_A_CELL = 8
"""Runs of one source, model, accelerator and precision that a fit looks at, evenly spaced: more say nothing new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """Records with a speed that can be projected, and their weight in a fit."""

    records: tuple[Record, ...]
    weights: Floats

    def of(self, source: str) -> Mask:
        """Which of them a source published."""
        return np.array([record.file == source for record in self.records])

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(record.file for record in self.records))


def runs_of(records: Sequence[Record], doubtful: Mapping[str, object]) -> Runs:
    """The runs of some records. A run weighs 1/√n in its source's n runs of one model, accelerator and precision, and
    nothing where its series or id is ``doubtful``. Records without a speed or with a job that cannot run are left out.
    """
    usable = _thinned([record for record in records if record.bar != "fits" and log_error(record, {}) is not None])
    cells = Counter(map(_cell, usable))
    weights = [
        0.0 if {record.series, record.id} & doubtful.keys() else 1 / sqrt(cells[_cell(record)]) for record in usable
    ]
    return Runs(records=usable, weights=np.array(weights))


def _thinned(records: Sequence[Record]) -> tuple[Record, ...]:
    members: dict[tuple[object, ...], list[Record]] = defaultdict(list)
    for record in records:
        members[_cell(record)].append(record)
    kept = [found[:: ceil(len(found) / MOST_OF_A_CELL)] for found in members.values()]
    return tuple(record for found in kept for record in found)


def _cell(record: Record) -> tuple[object, ...]:
    job = record.job
    return record.file, job.model.name, job.cluster.accelerator.name, job.plan.precision.compute


def log_error(record: Record, values: Mapping[str, float]) -> float | None:
    """log(projected / measured speed) of a record with other constants; None without a speed or a step."""
    job = replace(record.job, constants=record.job.constants.having(values))
    try:
        pair = speed_pair(record, step_time(job))
    except WindtunnelError:
        return None
    return None if pair is None else log(pair[1] / pair[0])


def log_errors(records: Sequence[Record], values: Mapping[str, float], only: Mask | None = None) -> Floats:
    """Errors of records that ``runs_of`` found usable; NaN for those that are not wanted."""
    wanted = np.ones(len(records), dtype=bool) if only is None else only
    return np.array(
        [log_error(record, values) if want else nan for record, want in zip(records, wanted, strict=True)],
        dtype=np.float64,
    )


def other_half(runs: Runs, relevant: Mask) -> Mask:
    """Of the relevant runs those of every second series by name: a scoped constant may not see them."""
    names = sorted({_series(record) for record, counts in zip(runs.records, relevant, strict=True) if counts})
    hidden = set(names[1::2])
    return np.array([counts and _series(r) in hidden for r, counts in zip(runs.records, relevant, strict=True)])


def by_series(runs: Runs, relevant: Mask) -> list[Mask]:
    """The relevant runs, series by series."""
    names = [_series(record) if counts else None for record, counts in zip(runs.records, relevant, strict=True)]
    return [np.array([other == name for other in names]) for name in dict.fromkeys(names) if name is not None]


def _series(record: Record) -> str:
    return record.series or record.id
