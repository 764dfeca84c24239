"""One record against its projection: rows of what was measured and what is projected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import exp

from windtunnel.catalog.calibration import error_table
from windtunnel.cost.kernels.gemm import peak
from windtunnel.errors import WindtunnelError
from windtunnel.job.job import Job
from windtunnel.job.record import TOLERANCE, Record
from windtunnel.memory.breakdown import MemoryBreakdown
from windtunnel.memory.interval import residuals
from windtunnel.projection.flops import flops_per_token
from windtunnel.projection.project import project
from windtunnel.projection.result import FlopsPerToken, Memory, Projection
from windtunnel.records.unstated import joint_verdict, readings


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRow:
    measured: float
    projected: float
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One comparison. ``error``: projected over measured speed, or bytes, minus one; None where skipped. ``interval``:
    where ``measured`` should lie in 80 % of comparable runs."""

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
class Checked:
    """What one record gives: its rows, its verdict, and the speed pair of its series."""

    rows: tuple[Row, ...]
    verdict: str | None
    outcome: str
    speed: tuple[float, float] | None
    series: str | None
    plan: str
    is_vtrain: bool


def check_record(record: Record, run: Callable[[Job], Projection] = project) -> Checked:
    """Project one record by ``run`` and compare every quantity it publishes; a refusal is a skipped row with its
    reason."""
    try:
        projection = run(record.job)
    except WindtunnelError as error:
        reason = str(error.faults[0]) if error.faults else str(error)
        return _unchecked(record, reason)
    found = readings(record, projection.memory)
    rows = [row for row in (_speed_row(record, projection), _memory_row(record, projection, found)) if row is not None]
    speed = next((row for row in rows if row.quantity == "speed"), None)
    pair = (speed.measured, speed.projected) if speed and speed.measured and speed.projected else None
    return Checked(
        rows=tuple(rows),
        verdict=joint_verdict(found),
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
    pair = speed_pair(record, projection.step_time)
    if pair is None:
        return None
    measured, projected = pair
    low, high = error_table().interval(record.job)
    row = _row(record, "speed", record.bar, measured, projected)
    return replace(row, interval=(projected * exp(-high), projected * exp(-low)))


def speed_pair(record: Record, step_time: float) -> tuple[float, float] | None:
    """(measured, projected) in tokens/s per accelerator, else in steps/s, else in the source's own FLOP convention.

    ``step_time``: projected seconds. None for a record without a speed.
    """
    measured, job = record.measured, record.job
    if measured.tokens_per_second_per_accelerator is not None:
        return measured.tokens_per_second_per_accelerator, _tokens_per_second(job, step_time)
    if measured.step_time is not None:
        return 1 / measured.step_time, 1 / step_time
    if measured.model_flops_per_second_per_accelerator is not None:
        return measured.model_flops_per_second_per_accelerator, _flops_per_second(record, step_time)
    if measured.mfu is not None:
        # Sources divide by the bf16 peak whatever the recipe.
        half = job.cluster.accelerator.peaks.half or peak(job.cluster.accelerator, job.plan.precision.compute)
        return measured.mfu, _flops_per_second(record, step_time) / half
    return None


def _tokens_per_second(job: Job, step_time: float) -> float:
    """Tokens/s per accelerator."""
    batch = job.plan.batch
    return batch.global_batch_size * batch.sequence_length / step_time / job.cluster.num_accelerators


def _flops_per_second(record: Record, step_time: float) -> float:
    """Model FLOP/s per accelerator as the record's source counts them."""
    flops = in_convention(flops_per_token(record.job), record.flops_convention)
    return _tokens_per_second(record.job, step_time) * flops


def in_convention(flops: FlopsPerToken, convention: str) -> float:
    """FLOPs of a token as a source counts them; an unknown convention is read as full attention, the commonest."""
    by_name = {"causal_half": flops.causal_half, "hardware": flops.hardware, "6nd": flops.six_nd}
    return by_name.get(convention, flops.full_attention)


def _memory_row(record: Record, projection: Projection, found: tuple[Memory, ...]) -> Row | None:
    measured = record.measured
    if measured.peak_memory is None:
        return None
    read = [read_bytes(record, memory) for memory in found]
    projected = read[0]
    row = _row(record, "memory", record.memory_bar or record.bar, measured.peak_memory, projected)
    low, high = residuals(projection.job)
    row = replace(row, interval=(low * min(read), high * max(read)))
    if measured.peak_memory_per_stage is None:
        return row
    stages = [_bytes(record, stage) for stage in projection.memory.stages]
    pairs = zip(measured.peak_memory_per_stage, stages, strict=False)
    return replace(row, stages=tuple(StageRow(measured=m, projected=p, error=p / m - 1) for m, p in pairs))


def read_bytes(record: Record, memory: Memory) -> float:
    """Bytes of the rank that the record read, the highest where it does not say."""
    stages = [_bytes(record, stage) for stage in memory.stages]
    return {"first": stages[0], "last": stages[-1]}.get(record.memory_rank, max(stages))


def _bytes(record: Record, stage: MemoryBreakdown) -> float:
    """Bytes of the kind the record read; an unknown kind is taken as allocated."""
    return {"reserved": stage.reserved, "device": stage.device}.get(record.memory_kind, stage.allocated)


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


def measured_step_time(record: Record) -> float | None:
    """Seconds of the measured step, from whatever speed the record publishes; None without one."""
    pair = speed_pair(record, 1.0)
    return None if pair is None else pair[1] / pair[0]
