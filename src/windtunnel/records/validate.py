"""Projections against ground truth: one row per record and quantity, errors by group, order within series."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import mean, median

from windtunnel.errors import WindtunnelError
from windtunnel.job.record import TOLERANCE, Record
from windtunnel.projection.memory import verdict
from windtunnel.projection.project import project
from windtunnel.projection.result import FlopsPerToken, Memory, Projection

DECIDED = 0.02
"""Relative difference of two measurements beyond which their order counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRow:
    measured: float
    projected: float
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One comparison. ``error``: projected over measured speed, or bytes, minus one; None where skipped."""

    id: str
    source: str
    bar: str
    series: str | None
    quantity: str
    measured: float | None = None
    projected: float | None = None
    error: float | None = None
    within_bar: bool | None = None
    interval: tuple[float, float] | None = None
    skipped: str | None = None
    stages: tuple[StageRow, ...] | None = None
    groups: tuple[str, ...] = ()


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
class Checked:
    """What one record gives: its rows, its verdict, and the speed pair of its series."""

    rows: tuple[Row, ...]
    verdict: str | None
    outcome: str
    speed: tuple[float, float] | None
    series: str | None
    plan: str
    is_vtrain: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    rows: tuple[Row, ...]
    groups: dict[str, dict[str, Group]]
    series: dict[str, Series]
    fits: Fits


def check_record(record: Record) -> Checked:
    """Project one record and compare every quantity it publishes; a refusal is a skipped row with its reason."""
    try:
        projection = project(record.job)
    except WindtunnelError as error:
        reason = str(error.faults[0]) if error.faults else str(error)
        return _unchecked(record, reason)
    rows = [row for row in (_speed_row(record, projection), _memory_row(record, projection)) if row is not None]
    speed = next((row for row in rows if row.quantity == "speed"), None)
    pair = (speed.measured, speed.projected) if speed and speed.measured and speed.projected else None
    return Checked(
        rows=tuple(rows),
        verdict=projection.memory.verdict,
        outcome=record.outcome,
        speed=pair,
        series=record.series,
        plan=_varies(record),
        is_vtrain=record.file == "vtrain",
    )


def skipped(record_id: str, source: str, reason: str) -> Checked:
    """A record that could not be read or projected."""
    row = Row(id=record_id, source=source, bar="", series=None, quantity="speed", skipped=reason)
    return Checked(
        rows=(row,), verdict=None, outcome="ran", speed=None, series=None, plan="", is_vtrain=source == "vtrain"
    )


def validate(
    records: Iterable[Record], check: Callable[[Record], Checked] = check_record, group_by: Sequence[str] = ()
) -> Validation:
    """Check all records and summarise; ``group_by`` adds a group per value of a job path."""
    checked = [_grouped(check(record), record, group_by) for record in records]
    return summarise(checked)


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
    return _grouped(checked, record, group_by)


def _grouped(checked: Checked, record: Record, group_by: Sequence[str]) -> Checked:
    if not group_by:
        return checked
    extra = tuple(f"{path}={_value(record.given, path)}" for path in group_by)
    return replace(checked, rows=tuple(replace(row, groups=row.groups + extra) for row in checked.rows))


def _value(given: object, path: str) -> object:
    for key in path.split("."):
        given = given.get(key) if isinstance(given, dict) else None
    return given


def _unchecked(record: Record, reason: str) -> Checked:
    quantity = "memory" if not _has_speed(record) and record.measured.peak_memory else "speed"
    row = Row(id=record.id, source=record.file, bar=record.bar, series=record.series, quantity=quantity, skipped=reason)
    return Checked(
        rows=(row,),
        verdict=None,
        outcome=record.outcome,
        speed=None,
        series=record.series,
        plan=_varies(record),
        is_vtrain=record.file == "vtrain",
    )


def _has_speed(record: Record) -> bool:
    measured = record.measured
    return any(
        value is not None
        for value in (
            measured.tokens_per_second_per_accelerator,
            measured.step_time,
            measured.model_flops_per_second_per_accelerator,
            measured.mfu,
        )
    )


def _speed_row(record: Record, projection: Projection) -> Row | None:
    pair = speed_pair(record, projection)
    if pair is None:
        return None
    measured, projected = pair
    return _row(record, "speed", record.bar, measured, projected)


def speed_pair(record: Record, projection: Projection) -> tuple[float, float] | None:
    """(measured, projected) in tokens/s per accelerator, else in steps/s, else in the source's own FLOP convention."""
    measured = record.measured
    if measured.tokens_per_second_per_accelerator is not None:
        return measured.tokens_per_second_per_accelerator, projection.tokens_per_second_per_accelerator
    if measured.step_time is not None:
        return 1 / measured.step_time, 1 / projection.step_time
    flops = projection.tokens_per_second_per_accelerator * in_convention(
        projection.flops_per_token, record.flops_convention
    )
    if measured.model_flops_per_second_per_accelerator is not None:
        return measured.model_flops_per_second_per_accelerator, flops
    if measured.mfu is not None:
        return measured.mfu, flops / (projection.job.cluster.accelerator.peaks.half or projection.peak_flops)
    return None


def in_convention(flops: FlopsPerToken, convention: str) -> float:
    """FLOPs of a token as a source counts them; an unknown convention is read as full attention, the commonest."""
    by_name = {"causal_half": flops.causal_half, "hardware": flops.hardware, "6nd": flops.six_nd}
    return by_name.get(convention, flops.full_attention)


def _memory_row(record: Record, projection: Projection) -> Row | None:
    measured = record.measured
    if measured.peak_memory is None:
        return None
    stages = [_bytes(record, stage) for stage in projection.memory.stages]
    projected = {"first": stages[0], "last": stages[-1]}.get(record.memory_rank, max(stages))
    row = _row(record, "memory", record.memory_bar or record.bar, measured.peak_memory, projected)
    if measured.peak_memory_per_stage is None:
        return row
    pairs = zip(measured.peak_memory_per_stage, stages, strict=False)
    return replace(row, stages=tuple(StageRow(measured=m, projected=p, error=p / m - 1) for m, p in pairs))


def _bytes(record: Record, stage: object) -> float:
    kind = {"reserved": "reserved", "device": "device"}.get(record.memory_kind, "allocated")
    value: float = getattr(stage, kind)
    return value


def _row(record: Record, quantity: str, bar: str, measured: float, projected: float) -> Row:
    error = projected / measured - 1
    tolerance = TOLERANCE.get(bar)
    return Row(
        id=record.id,
        source=record.file,
        bar=bar,
        series=record.series,
        quantity=quantity,
        measured=measured,
        projected=projected,
        error=error,
        within_bar=None if tolerance is None else abs(error) <= tolerance,
        groups=("moe" if record.job.model.is_moe else "dense",),
    )


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


def _varies(record: Record) -> str:
    """What a plan-varying series holds fixed: everything but the plan and the model's name, and the sequence length."""
    given = dict(record.given)
    model = given.get("model")
    if isinstance(model, dict):
        given["model"] = {key: value for key, value in model.items() if key != "name"}
    plan = given.pop("plan", None)
    batch = plan.get("batch") if isinstance(plan, dict) else None
    length = batch.get("sequence_length") if isinstance(batch, dict) else None
    return f"{sorted(given.items(), key=str)}|{length}"


def edge_verdict(memory: Memory, capacity: float, margin: float) -> str:
    """The verdict a memory projection would get on a part of another capacity."""
    return verdict(max(stage.device for stage in memory.stages), capacity, margin)
