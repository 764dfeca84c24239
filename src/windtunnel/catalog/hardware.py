"""Accelerators and usual clusters of the catalog, other names for them, power caps and accelerators of a job's own."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from windtunnel.catalog.files import data_names, load_data
from windtunnel.errors import Fault, FormatError, MissingError
from windtunnel.job.cluster import (
    Accelerator,
    AttentionEfficiency,
    CollectiveFit,
    GemmEfficiency,
    Host,
    Peaks,
    ScaleOut,
    ScaleUp,
)

_REQUIRED = (
    "vendor", "architecture", "peaks", "compute_units", "hbm_capacity", "hbm_bandwidth", "scale_up", "gemm",
    "attention", "memory_bound",
)  # fmt: skip
_MERGED = frozenset({"peaks", "scale_up", "gemm", "system", "scale_out", "host"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemDefaults:
    """The usual node of an accelerator and the fabric between nodes."""

    accelerators_per_node: int
    scale_up: ScaleUp
    scale_out: ScaleOut
    host: Host


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPoint:
    """Measured efficiencies at a power cap of ``power`` watts."""

    power: float
    gemm: GemmEfficiency
    attention: tuple[AttentionEfficiency, ...]
    memory_bound: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogAccelerator:
    """An accelerator, the system it usually sits in, and the source of each group of its values.

    ``clock`` in Hz; ``capacity_status`` says whether the usable capacity is the driver's figure, estimated from the
    label, or given by a job.
    """

    accelerator: Accelerator
    system: SystemDefaults
    clock: float | None
    capacity_status: str
    set_points: tuple[SetPoint, ...]
    source: Mapping[str, str]


def accelerator_names() -> tuple[str, ...]:
    """Names of the catalog's accelerators, sorted."""
    return data_names("accelerators")


def accelerator_aliases() -> Mapping[str, str]:
    """Other names of accelerators, each with the catalog name it stands for."""
    return MappingProxyType(_shared()["aliases"])


def find_accelerator(name: str) -> CatalogAccelerator:
    """The accelerator of a catalog name or another name of it: ``h100-sxm-80gb``, ``h100``, ``H100 SXM``.

    Raises:
        MissingError: no such accelerator; the nearest names are in the remedy.
    """
    return _load(_canonical(name))


def cluster_names() -> tuple[str, ...]:
    """Names of the catalog's usual clusters, sorted."""
    return data_names("clusters")


def find_cluster(name: str) -> Mapping[str, object]:
    """A usual cluster as the ``cluster`` mapping of a job. Raises MissingError when there is none of that name."""
    return MappingProxyType(_cluster(name)["cluster"])


def cluster_source(name: str) -> str:
    """Where the figures of a usual cluster come from. Raises MissingError when there is none of that name."""
    return str(_cluster(name)["source"])


def accelerator_schema() -> dict[str, Any]:
    """JSON schema of an accelerator as a job may write it."""
    from windtunnel.catalog.hardware_format import schema

    return schema()


def custom_accelerator(mapping: Mapping[str, object], path: str = "cluster.accelerator") -> CatalogAccelerator:
    """A job's own accelerator: ``{base: NAME, …fields}`` or all fields, quantities as text with units.

    Fields given replace those of the base; ``peaks``, ``gemm``, ``scale_up`` and ``system`` key by key. A new
    ``scale_up.bandwidth`` scales the base's measured curves unless ``fits`` are given too.

    Raises:
        FormatError: every unknown, missing or ill-typed field at once.
        MissingError: the base is not in the catalog.
    """
    from windtunnel.catalog.format import read_section
    from windtunnel.catalog.hardware_format import AcceleratorFile, CustomAccelerator

    read_section(CustomAccelerator, mapping, path)
    given = {key: value for key, value in mapping.items() if value is not None}
    base = str(given.pop("base")) if "base" in given else None
    whole = _own(given, path) if base is None else _changed(_canonical(base, f"{path}.base"), given)
    return _build(read_section(AcceleratorFile, whole, path))


def with_bandwidth(scale_up: ScaleUp, bandwidth: float) -> ScaleUp:
    """The fabric at another bandwidth (bytes/s): measured curves keep latency and root, their rate scales alike."""
    ratio = bandwidth / scale_up.bandwidth
    fits = tuple(replace(fit, bandwidth=fit.bandwidth * ratio) for fit in scale_up.fits)
    return replace(scale_up, bandwidth=bandwidth, fits=fits)


def at_power(entry: CatalogAccelerator, watts: float | None) -> Accelerator:
    """The accelerator under a power cap, in watts: measured efficiencies where a set point is that cap, else a law.

    share of the full-power efficiency = (cap / rated power) ^ exponent, one exponent for GEMM and one for attention
    (``data/hardware.yaml``). A cap at or above the rated power, or of a part without one, changes nothing.
    """
    accelerator = entry.accelerator
    if watts is None or accelerator.power is None or watts >= accelerator.power:
        return accelerator
    share = watts / accelerator.power
    capped = replace(
        accelerator,
        power=watts,
        gemm=_weaker_gemm(accelerator.gemm, share ** _exponent("gemm")),
        attention=tuple(_weaker_attention(a, share ** _exponent("attention")) for a in accelerator.attention),
    )
    point = next((point for point in entry.set_points if point.power == watts), None)
    return capped if point is None else _at_set_point(capped, point)


def _at_set_point(capped: Accelerator, point: SetPoint) -> Accelerator:
    measured = {entry.kernel: entry for entry in point.attention}
    attention = tuple(measured.get(entry.kernel, entry) for entry in capped.attention)
    return replace(capped, gemm=point.gemm, attention=attention, memory_bound=point.memory_bound)


def _weaker_gemm(gemm: GemmEfficiency, share: float) -> GemmEfficiency:
    return GemmEfficiency(
        bf16=gemm.bf16 * share,
        fp8=gemm.fp8 * share,
        mxfp8=gemm.mxfp8 * share,
        fp8_blockwise=gemm.fp8_blockwise * share,
        nvfp4=gemm.nvfp4 * share,
        launch=gemm.launch,
    )


def _weaker_attention(entry: AttentionEfficiency, share: float) -> AttentionEfficiency:
    return replace(entry, forward=entry.forward * share, backward=entry.backward * share)


def _exponent(kind: str) -> float:
    return float(_shared()["power_cap"][kind]["exponent"])


@lru_cache(maxsize=1)
def _shared() -> Any:
    return load_data("hardware.yaml")


@lru_cache(maxsize=64)
def _raw(name: str) -> Any:
    return load_data("accelerators", f"{name}.yaml")


@lru_cache(maxsize=64)
def _load(name: str) -> CatalogAccelerator:
    from windtunnel.catalog.format import read_section
    from windtunnel.catalog.hardware_format import AcceleratorFile

    return _build(read_section(AcceleratorFile, _raw(name), f"accelerators/{name}.yaml"))


def _cluster(name: str) -> Any:
    spelled = _spelled(name)
    if spelled not in cluster_names():
        raise MissingError(_unknown("cluster", name, cluster_names(), "clusters"))
    return load_data("clusters", f"{spelled}.yaml")


def _canonical(name: str, path: str = "cluster.accelerator") -> str:
    spelled = _spelled(name)
    names, aliases = accelerator_names(), accelerator_aliases()
    known = spelled if spelled in names else aliases.get(spelled)
    if known is None:
        raise MissingError(_unknown(path, name, (*names, *aliases), "accelerators"))
    return known


def _spelled(name: str) -> str:
    return "-".join(name.lower().replace("_", " ").replace("-", " ").split())


def _unknown(path: str, name: str, names: tuple[str, ...], kind: str) -> Fault:
    close = difflib.get_close_matches(_spelled(name), names, n=3, cutoff=0.5)
    remedy = f"`windtunnel list {kind}` shows all"
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    return Fault(path, name[:60], f"the catalog has no {kind.removesuffix('s')} of this name", hint + remedy)


def _own(given: dict[str, object], path: str) -> dict[str, object]:
    """An accelerator defined in full; the usual system where it names none."""
    missing = [key for key in _REQUIRED if key not in given]
    if missing:
        rule = "is required for an accelerator without base"
        raise FormatError([Fault(f"{path}.{key}", "", rule, "add it, or name a base") for key in missing])
    usual = {key: value for key, value in _shared()["usual_system"].items() if key != "source"}
    whole = {"name": "custom", "measured": False, "capacity_status": "given", **given}
    whole["system"] = _merged(usual, given.get("system", {}))
    whole["source"] = {"all": "given by the job"}
    return whole


def _changed(base: str, given: dict[str, object]) -> dict[str, object]:
    """The base's file with the fields given in place of its own."""
    raw = dict(_raw(base))
    whole = {key: _merged(raw[key], given[key]) if key in given else raw[key] for key in raw}
    whole |= {key: value for key, value in given.items() if key not in raw}
    whole["name"] = given.get("name", f"{base} (changed)")
    whole["scale_up"] = _rescaled(raw["scale_up"], whole["scale_up"], given.get("scale_up"))
    if "hbm_capacity" in given:
        whole["capacity_status"] = "given"
    whole["source"] = {**raw["source"], **{key: "given by the job" for key in given if key != "name"}}
    return whole


def _merged(old: Any, new: Any) -> Any:
    """Mappings merge key by key, anything else is replaced."""
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return new
    return {**old, **{key: _merged(old[key], value) if key in old else value for key, value in new.items()}}


def _rescaled(old: Any, new: Any, given: object) -> Any:
    from windtunnel.units import format_quantity, parse

    if not isinstance(given, Mapping) or "fits" in given or "bandwidth" not in given:
        return new
    ratio = parse(new["bandwidth"], "bandwidth") / parse(old["bandwidth"], "bandwidth")
    scaled = [
        {**fit, "bandwidth": format_quantity(parse(fit["bandwidth"], "bandwidth") * ratio, "bandwidth")}
        for fit in old.get("fits", ())
    ]
    return {**new, "fits": scaled}


def _build(values: Mapping[str, Any]) -> CatalogAccelerator:
    """The value of a validated mapping in SI units."""
    accelerator = Accelerator(
        name=values["name"],
        vendor=values["vendor"],
        architecture=values["architecture"],
        peaks=Peaks(**values["peaks"]),
        compute_units=values["compute_units"],
        hbm_capacity=values["hbm_capacity"],
        hbm_bandwidth=values["hbm_bandwidth"],
        power=values.get("power"),
        gemm=_gemm(values["gemm"]),
        attention=_attention(values["attention"]),
        memory_bound=values["memory_bound"],
        measured=values["measured"],
    )
    points = (_set_point(point) for point in values.get("set_points", ()))
    return CatalogAccelerator(
        accelerator=accelerator,
        system=_system(values["system"], values["scale_up"]),
        clock=values.get("clock"),
        capacity_status=values["capacity_status"],
        set_points=tuple(points),
        source=MappingProxyType(values["source"]),
    )


def _gemm(values: Mapping[str, Any]) -> GemmEfficiency:
    fp8 = values.get("fp8", values["bf16"])
    return GemmEfficiency(
        bf16=values["bf16"],
        fp8=fp8,
        mxfp8=values.get("mxfp8", fp8),
        fp8_blockwise=values.get("fp8_blockwise", fp8),
        nvfp4=values.get("nvfp4", values.get("mxfp8", fp8)),
        launch=values["launch"],
    )


def _attention(entries: tuple[Mapping[str, Any], ...]) -> tuple[AttentionEfficiency, ...]:
    return tuple(AttentionEfficiency(**entry) for entry in entries)


def _set_point(values: Mapping[str, Any]) -> SetPoint:
    return SetPoint(
        power=values["power"],
        gemm=_gemm(values["gemm"]),
        attention=_attention(values["attention"]),
        memory_bound=values["memory_bound"],
    )


def _system(values: Mapping[str, Any], scale_up: Mapping[str, Any]) -> SystemDefaults:
    fits = tuple(CollectiveFit(**{"root": 0.0, **fit}) for fit in scale_up.get("fits", ()))
    return SystemDefaults(
        accelerators_per_node=values["accelerators_per_node"],
        scale_up=ScaleUp(**{**scale_up, "fits": fits}),
        scale_out=ScaleOut(**values["scale_out"]),
        host=Host(**values["host"]),
    )
