"""The effective job in the job format: every value written out, so that reading it again gives the same job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from windtunnel.catalog.hardware import (
    CatalogAccelerator,
    accelerator_names,
    at_power,
    find_accelerator,
    with_bandwidth,
)
from windtunnel.catalog.models import model_to_mapping
from windtunnel.errors import MissingError
from windtunnel.job.cluster import Accelerator, Cluster
from windtunnel.job.job import Job, Run
from windtunnel.job.plan import Plan
from windtunnel.job.recompute import spelled
from windtunnel.job.software import Software
from windtunnel.schedule.layout import layout_text
from windtunnel.units import Dimension, format_quantity

_UNITS: dict[str, Dimension] = {
    "bandwidth": "bandwidth", "latency": "time", "memory": "bytes", "pcie_bandwidth": "bandwidth",
    "hbm_capacity": "bytes", "hbm_bandwidth": "bandwidth", "power_cap": "power", "power": "power",
    "checkpoint_interval": "time", "mtbf_per_accelerator": "time", "restart_time": "time",
}  # fmt: skip
_PEAKS = ("fp32", "tf32", "fp16", "bf16", "fp8", "fp6", "fp4", "int8")


def job_to_mapping(job: Job) -> dict[str, Any]:
    """A JSON-able mapping in the job format; ``load_job(job_to_mapping(job))`` equals ``job`` but for its origin."""
    mapping = {
        "model": model_to_mapping(job.model),
        "cluster": _cluster(job.cluster),
        "software": _software(job.software),
        "plan": _plan(job.plan, job.model.num_layers),
    }
    if job.run != Run():
        mapping["run"] = _written(job.run)
    return mapping


def _written(value: Any, *, leave_out: Sequence[str] = ()) -> dict[str, Any]:
    """The fields of a flat value that are not None, quantities with units."""
    pairs = ((field.name, getattr(value, field.name)) for field in fields(value) if field.name not in leave_out)
    return {name: _spelled(name, item) for name, item in pairs if item is not None}


def _spelled(name: str, item: Any) -> Any:
    if name in _UNITS:
        return format_quantity(item, _UNITS[name])
    if isinstance(item, frozenset):
        return sorted(item)
    if is_dataclass(item):
        return _written(item)
    return [_spelled("", part) for part in item] if isinstance(item, tuple) else item


def _cluster(cluster: Cluster) -> dict[str, Any]:
    accelerator, overrides = _accelerator(cluster)
    mapping = _written(cluster, leave_out=("accelerator", "scale_up"))
    fabric = {"scale_up": _written(cluster.scale_up, leave_out=("fits",))}
    return {"accelerator": accelerator, **mapping, **overrides, **fabric}


def _accelerator(cluster: Cluster) -> tuple[Any, dict[str, Any]]:
    """A catalog name where it says all but the overrides; else every field."""
    try:
        known = find_accelerator(cluster.accelerator.name)
    except MissingError:
        return _fields_of(cluster), {}
    usual, part = at_power(known, cluster.power_cap), cluster.accelerator
    overrides = {
        key: _spelled(key, getattr(part, key))
        for key in ("hbm_capacity", "hbm_bandwidth")
        if getattr(part, key) != getattr(usual, key)
    }
    same = replace(usual, hbm_capacity=part.hbm_capacity, hbm_bandwidth=part.hbm_bandwidth)
    if same != part or not _usual_curves(cluster, known):
        return _fields_of(cluster), {}
    return known.accelerator.name, overrides


def _usual_curves(cluster: Cluster, known: CatalogAccelerator) -> bool:
    """Whether the measured curves of the fabric are those the accelerator's name brings."""
    usual, here = known.system.scale_up, cluster.scale_up
    fits = with_bandwidth(usual, here.bandwidth).fits if here.kind == usual.kind else ()
    return fits == here.fits


def _fields_of(cluster: Cluster) -> dict[str, Any]:
    """A custom accelerator with all its fields, its fabric and its host."""
    part: Accelerator = cluster.accelerator
    mapping = _written(part, leave_out=("peaks", "measured", "attention"))
    if part.measured:
        # That a part is among the evidence comes with a catalog name only; every figure of it is replaced.
        mapping["base"] = _relative(part)
    rates = {dtype: getattr(part.peaks, dtype) for dtype in _PEAKS}
    mapping["peaks"] = {
        dtype: None if rate is None else format_quantity(rate, "flops")
        for dtype, rate in rates.items()
        if rate is not None or part.measured
    }
    mapping["gemm"] = {**mapping["gemm"], "launch": format_quantity(part.gemm.launch, "time")}
    mapping["attention"] = [_written(entry) for entry in part.attention]
    mapping["scale_up"] = {
        **_written(cluster.scale_up, leave_out=("fits",)),
        "fits": [_written(fit) for fit in cluster.scale_up.fits],
    }
    return mapping


def _relative(part: Accelerator) -> str:
    """A catalog accelerator of the same architecture that is among the evidence."""
    known = (find_accelerator(name).accelerator for name in accelerator_names())
    same = [one for one in known if one.measured and (one.power is None) == (part.power is None)]
    return next((one.name for one in same if one.architecture == part.architecture), same[0].name)


def _software(software: Software) -> dict[str, Any]:
    return _written(software, leave_out=("traits",))


def _plan(plan: Plan, num_layers: int) -> dict[str, Any]:
    return {
        "parallel": {**_written(plan.parallel), "order": "-".join(plan.parallel.order)},
        "pipeline": {**_written(plan.pipeline), "layout": layout_text(plan.pipeline.layout)},
        "batch": _written(plan.batch),
        "sharding": _written(plan.sharding),
        "precision": _written(plan.precision),
        "optimizer": plan.optimizer,
        "recompute": spelled(plan.recompute, num_layers),
        "moe": _written(plan.moe),
        "overlap": _written(plan.overlap),
        "context_parallel": _written(plan.context_parallel),
        "offload": _written(plan.offload),
        "loss": _written(plan.loss),
        "dropout": _written(plan.dropout),
    }
