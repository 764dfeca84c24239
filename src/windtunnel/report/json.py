"""The documents ``--json`` prints, as plain dictionaries; their shapes are a contract with scripts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from windtunnel.catalog.dump import job_to_mapping
from windtunnel.job.job import Origin
from windtunnel.job.legality.violation import Repair, Violation
from windtunnel.memory.breakdown import MemoryBreakdown
from windtunnel.projection.compare import Delta
from windtunnel.projection.result import Explanation, FlopsPerToken, Memory, Parameters, Projection
from windtunnel.report.plain import plain
from windtunnel.step.parts import COMMUNICATION, Parts

FLOPS_CONVENTION = "causal_half"
"""The convention of ``mfu`` and ``model_flops_per_second_per_accelerator``."""

_BYTE_CLASSES = (
    "weights", "gradients", "master", "moments", "activations", "logits", "buffers", "dispatcher",
    "allocated", "reserved", "overhead", "device",
)  # fmt: skip


def projection_document(projection: Projection) -> dict[str, Any]:
    """``project --json``: seconds, bytes, FLOP and tokens, every float plain."""
    return {
        "job": plain(job_to_mapping(projection.job)),
        "origin": origin_document(projection.job.origin),
        "step_time": projection.step_time,
        "tokens_per_second": projection.tokens_per_second,
        "tokens_per_second_per_accelerator": projection.tokens_per_second_per_accelerator,
        "model_flops_per_token": _flops(projection.flops_per_token),
        "model_flops_per_second_per_accelerator": projection.model_flops_per_second_per_accelerator,
        "mfu": projection.mfu,
        "flops_convention": FLOPS_CONVENTION,
        "peak_flops": projection.peak_flops,
        "time": time_document(projection.time),
        "hidden_communication": plain(projection.hidden_communication),
        "memory": _memory(projection.memory),
        "parameters": _parameters(projection.parameters),
        "schedule": {
            "name": projection.schedule_name,
            "bubble_fraction": projection.bubble_fraction,
            "num_microbatches": projection.num_microbatches,
        },
        "provenance": plain(projection.provenance),
        "uncertainty": None if projection.uncertainty is None else plain(projection.uncertainty),
        "run": plain(projection.run),
        "headroom": projection.memory.headroom,
        "explain": None if projection.explanation is None else _explanation(projection.explanation),
        "warnings": warnings_of(projection),
    }


def memory_document(projection: Projection) -> dict[str, Any]:
    """``memory --json``."""
    return {
        "memory": _memory(projection.memory),
        "parameters": _parameters(projection.parameters),
        "origin": origin_document(projection.job.origin),
        "warnings": warnings_of(projection),
    }


def compare_document(projections: Sequence[Projection], deltas: Iterable[Delta]) -> dict[str, Any]:
    """``compare --json``: the terms of a delta sum to its ``step_time``."""
    return {
        "jobs": [projection_document(projection) for projection in projections],
        "deltas": [
            {
                "from": delta.from_index,
                "to": delta.to_index,
                "step_time": delta.step_time,
                "terms": plain(delta.terms),
                "peak_device": delta.peak_device,
            }
            for delta in deltas
        ],
    }


def check_document(
    violations: Sequence[Violation],
    grids: Mapping[str, object],
    minimum_accelerators: int | None,
    origin: Iterable[Origin],
    warnings: Iterable[str] = (),
) -> dict[str, Any]:
    """``check --json``: a job is legal when no violation is an error."""
    errors = [violation for violation in violations if violation.severity == "error"]
    softer = [violation.message for violation in violations if violation.severity == "warning"]
    return {
        "legal": not errors,
        "grids": plain(grids),
        "violations": [_violation(violation) for violation in errors],
        "minimum_accelerators": minimum_accelerators,
        "origin": origin_document(origin),
        "warnings": [*softer, *warnings],
    }


def elasticity_document(elasticity: Iterable[tuple[str, float]]) -> list[dict[str, Any]]:
    """d log step_time / d log figure, one entry a figure."""
    return [{"path": path, "value": value} for path, value in elasticity]


def origin_document(origin: Iterable[Origin]) -> list[dict[str, Any]]:
    return [plain(entry) for entry in origin]


def time_document(time: Parts) -> dict[str, Any]:
    """The parts of a step; the six groups stand together under ``exposed_communication``."""
    return {
        "compute": time.compute,
        "recompute": time.recompute,
        "exposed_communication": {group: getattr(time, group) for group in COMMUNICATION},
        "host": time.host,
        "contention": time.contention,
        "offload": time.offload,
        "optimizer": time.optimizer,
        "jitter": time.jitter,
        "bubble": time.bubble,
    }


def warnings_of(projection: Projection) -> list[str]:
    """The job's warnings and the projection's own, each once."""
    return list(dict.fromkeys((*projection.job.warnings, *projection.warnings)))


def _flops(flops: FlopsPerToken) -> dict[str, float]:
    return {
        "causal_half": flops.causal_half,
        "full_attention": flops.full_attention,
        "hardware": flops.hardware,
        "6nd": flops.six_nd,
    }


def _memory(memory: Memory) -> dict[str, Any]:
    peak = memory.peak
    return {
        "verdict": memory.verdict,
        "capacity": memory.capacity,
        "peak_allocated": max(stage.allocated for stage in memory.stages),
        "peak_reserved": max(stage.reserved for stage in memory.stages),
        "peak_device": peak.device,
        "peak_stage": peak.stage,
        "interval": list(memory.interval),
        "host": memory.host,
        "host_checkpoint": memory.host_checkpoint,
        "stages": [_stage(stage) for stage in memory.stages],
        **({} if memory.anchored is None else {"anchored": plain(memory.anchored)}),
    }


def _stage(stage: MemoryBreakdown) -> dict[str, Any]:
    head = {"stage": stage.stage, "rank": stage.rank, "moment": stage.moment, "in_flight": stage.in_flight}
    return head | {name: getattr(stage, name) for name in _BYTE_CLASSES}


def _parameters(parameters: Parameters) -> dict[str, Any]:
    return {"total": parameters.total, "active": parameters.active, "per_stage": list(parameters.per_stage)}


def _explanation(explanation: Explanation) -> dict[str, Any]:
    return {
        "binding": plain(explanation.binding),
        "assumptions": plain(explanation.assumptions),
        "knobs": [
            {
                "changes": plain(dict(knob.changes)),
                "step_time": knob.step_time,
                "peak_device": knob.peak_device,
                "simulated": knob.simulated,
            }
            for knob in explanation.knobs
        ],
    }


def _violation(violation: Violation) -> dict[str, Any]:
    return {
        "rule": violation.rule,
        "message": violation.message,
        "path": violation.path,
        "values": plain(violation.values),
        "repairs": [_repair(repair) for repair in violation.repairs],
    }


def _repair(repair: Repair) -> dict[str, Any]:
    return {"changes": plain(repair.changes)}
