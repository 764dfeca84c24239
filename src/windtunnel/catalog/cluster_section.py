"""The cluster of a job: the accelerator of the catalog, its usual system, and what the job says otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from windtunnel.catalog.hardware import (
    CatalogAccelerator,
    at_power,
    custom_accelerator,
    find_accelerator,
    with_bandwidth,
)
from windtunnel.job.cluster import Accelerator, Cluster, ScaleUp
from windtunnel.job.job import Origin


def read_cluster(section: Mapping[str, Any]) -> tuple[Cluster, tuple[Origin, ...]]:
    """The cluster of a checked ``cluster`` section, and where its values not given came from.

    Raises:
        MissingError: no such accelerator in the catalog.
        FormatError: an accelerator whose own fields are not valid, or a power cap it cannot run at.
    """
    known = _accelerator(section["accelerator"])
    system = known.system
    scale_up, origin_up = _fill(system.scale_up, section.get("scale_up", {}), "scale_up", known)
    scale_out, origin_out = _fill(system.scale_out, section.get("scale_out", {}), "scale_out", known)
    host, origin_host = _fill(system.host, section.get("host", {}), "host", known)
    per_node = section.get("accelerators_per_node", system.accelerators_per_node)
    cluster = Cluster(
        accelerator=_with_overrides(known, section),
        num_accelerators=section["num_accelerators"],
        accelerators_per_node=per_node,
        scale_up=_scale_up(system.scale_up, scale_up),
        scale_out=scale_out,
        host=host,
        power_cap=section.get("power_cap"),
        price=section.get("price"),
    )
    node = () if "accelerators_per_node" in section else (_usual("accelerators_per_node", per_node, known),)
    return cluster, (*node, *origin_up, *origin_out, *origin_host)


def _accelerator(value: str | Mapping[str, Any]) -> CatalogAccelerator:
    return find_accelerator(value) if isinstance(value, str) else custom_accelerator(value)


def _with_overrides(known: CatalogAccelerator, section: Mapping[str, Any]) -> Accelerator:
    cap = section.get("power_cap")
    accelerator = known.accelerator if cap is None else at_power(known, cap)
    given = {key: section[key] for key in ("hbm_capacity", "hbm_bandwidth") if section.get(key) is not None}
    return replace(accelerator, **given)


def _fill(usual: Any, given: Mapping[str, Any], name: str, known: CatalogAccelerator) -> tuple[Any, tuple[Origin, ...]]:
    """``usual`` with the fields given replaced; an origin for each public field that was not."""
    written = {key: value for key, value in given.items() if value is not None}
    filled = replace(usual, **written)
    keys = [key for key in type(usual).__dataclass_fields__ if key not in written and key != "fits"]
    return filled, tuple(_usual(f"{name}.{key}", getattr(filled, key), known) for key in keys)


def _usual(path: str, value: object, known: CatalogAccelerator) -> Origin:
    return Origin(f"cluster.{path}", value, "neutral", f"usual system of {known.accelerator.name}")


def _scale_up(usual: ScaleUp, filled: ScaleUp) -> ScaleUp:
    """Curves measured on the usual fabric scale with its bandwidth, and say nothing about another kind."""
    if filled.kind != usual.kind:
        return replace(filled, fits=())
    return replace(filled, fits=with_bandwidth(usual, filled.bandwidth).fits)
