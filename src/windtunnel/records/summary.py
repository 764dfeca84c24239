"""Many records together: errors by group, order within series, verdicts against outcomes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import mean, median

from windtunnel.job.record import TOLERANCE, Record
from windtunnel.records.compare import Checked, Row

DECIDED = 0.02
"""Relative difference of two measurements beyond which their order counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    n: int
    mape: float | None
    median: float | None
    p90: float | None
    bias: float | None
    within_bar: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """``ordered``: share of decided pairs ordered as measured; ``regret``: measured loss of the projected favourite."""

    n: int
    decided: int
    ordered: float | None
    regret: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fits:
    n: int
    false_oom: int
    borderline: int
    missed_oom: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    rows: tuple[Row, ...]
    groups: dict[str, dict[str, Group]]
    series: dict[str, Series]
    fits: Fits


def summarise(checked: Sequence[Checked]) -> Validation:
    """Groups, series and verdict counts of checked records."""
    rows = tuple(row for item in checked for row in item.rows)
    return Validation(
        rows=rows,
        groups={
            quantity: _groups([row for row in rows if row.quantity == quantity]) for quantity in ("speed", "memory")
        },
        series=_series(checked),
        fits=_fits(checked),
    )


def grouped(checked: Checked, record: Record, group_by: Sequence[str]) -> Checked:
    """``checked`` with a group per value of each job path in ``group_by``."""
    if not group_by:
        return checked
    extra = tuple(f"{path}={_value(record.given, path)}" for path in group_by)
    return replace(checked, rows=tuple(replace(row, groups=row.groups + extra) for row in checked.rows))


def _value(given: object, path: str) -> object:
    for key in path.split("."):
        given = given.get(key) if isinstance(given, dict) else None
    return given


def _groups(rows: Sequence[Row]) -> dict[str, Group]:
    """all (without vtrain), one per bar, dense, moe, one per file and per asked value; rows of bar fits are in none."""
    members: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.error is None or row.bar == "fits":
            continue
        for name in _memberships(row):
            members[name].append(row)
    return {name: summary(found) for name, found in members.items()}


def _memberships(row: Row) -> list[str]:
    vtrain = row.source == "vtrain"
    names = [row.source, *(row.groups if not vtrain else ())]
    if not vtrain:
        names.append("all")
        if row.bar in TOLERANCE:
            names.append(row.bar)
            names += [f"{group} {row.bar}" for group in row.groups[:1]]
    return names


def summary(rows: Sequence[Row]) -> Group:
    """Mean, median, 90th percentile and median signed error, and the share within a percentage bar."""
    errors = [row.error for row in rows if row.error is not None]
    sizes = sorted(abs(error) for error in errors)
    barred = [row.within_bar for row in rows if row.within_bar is not None]
    if not errors:
        return Group(n=0, mape=None, median=None, p90=None, bias=None, within_bar=None)
    return Group(
        n=len(errors),
        mape=mean(sizes),
        median=median(sizes),
        p90=sizes[min(len(sizes) - 1, int(0.9 * len(sizes)))],
        bias=median(errors),
        within_bar=mean(barred) if barred else None,
    )


def _fits(checked: Sequence[Checked]) -> Fits:
    """Verdicts against outcomes."""
    ran = [item for item in checked if item.outcome == "ran" and item.verdict is not None]
    out = [item for item in checked if item.outcome == "oom" and item.verdict is not None]
    return Fits(
        n=len(ran) + len(out),
        false_oom=sum(item.verdict == "oom" for item in ran),
        borderline=sum(item.verdict == "borderline" for item in ran),
        missed_oom=sum(item.verdict == "fits" for item in out),
    )


def _series(checked: Sequence[Checked]) -> dict[str, Series]:
    by_name: dict[str, list[Checked]] = defaultdict(list)
    for item in checked:
        if item.series and item.speed is not None:
            by_name[item.series].append(item)
    result = {name: one_series(items) for name, items in by_name.items() if len(items) > 1}
    for name, vtrain in (("pooled", False), ("pooled vtrain", True)):
        pooled = [one_series(items) for items in by_name.values() if len(items) > 1 and items[0].is_vtrain == vtrain]
        if pooled:
            result[name] = _pool(pooled)
    return result


def one_series(items: Sequence[Checked]) -> Series:
    """Pairs that differ by more than 2 % as measured; a projected tie counts as wrong."""
    speeds = [item.speed for item in items if item.speed is not None]
    decided = right = 0
    for index, (measured, projected) in enumerate(speeds):
        for other_measured, other_projected in speeds[index + 1 :]:
            if abs(measured / other_measured - 1) <= DECIDED:
                continue
            decided += 1
            right += (measured - other_measured) * (projected - other_projected) > 0
    only_plan = len({item.plan for item in items}) == 1
    best = max(measured for measured, _ in speeds)
    favourite = max(speeds, key=lambda pair: pair[1])[0]
    return Series(
        n=len(speeds),
        decided=decided,
        ordered=right / decided if decided else None,
        regret=1 - favourite / best if only_plan else None,
    )


def _pool(series: Sequence[Series]) -> Series:
    decided = sum(item.decided for item in series)
    right = sum(item.decided * item.ordered for item in series if item.ordered is not None)
    regrets = [item.regret for item in series if item.regret is not None]
    return Series(
        n=sum(item.n for item in series),
        decided=decided,
        ordered=right / decided if decided else None,
        regret=mean(regrets) if regrets else None,
    )
