"""Re-anchors a job's cluster and constants on what a profile measured of its network.

Group sizes of a tier that were seen get their fitted latency and bandwidth; the catalog's curves of other sizes keep
their ratio to the catalog's curve of the nearest size seen. Tiers nobody saw keep the catalog's figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import log2, sqrt

from windtunnel.cost.profile import Entry, Profile
from windtunnel.cost.profile_keys import calibration_key
from windtunnel.job.cluster import CollectiveFit, ScaleUp
from windtunnel.job.constants import Constants
from windtunnel.job.job import Job

CURVES = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")
SLOWDOWN = "compute_beside_traffic"
"""Seconds compute loses for every second of traffic beside it."""


def anchored(job: Job, profile: Profile) -> Job:
    """``job`` on the network as ``profile`` measured it; unchanged where it measured none."""
    fitted = curves(profile)
    constants = job.constants
    slowdown = profile.find(calibration_key(SLOWDOWN))
    if slowdown is not None:
        constants = replace(
            constants,
            data_parallel=replace(constants.data_parallel, reduce_hidden=1.0),
            collective=replace(constants.collective, slowdown=slowdown.seconds),
        )
    scale_up = job.cluster.scale_up
    constants = _point_to_point(profile, constants, scale_up)
    if fitted:
        scale_up = replace(scale_up, fits=(*_unseen(scale_up.fits, fitted), *fitted))
    return replace(job, cluster=replace(job.cluster, scale_up=scale_up), constants=constants)


SMALL, LARGE = 2.0**16, 2.0**28
"""Bytes at which a collective's latency, and its bandwidth, decide."""


def _unseen(catalog: Sequence[CollectiveFit], fitted: Sequence[CollectiveFit]) -> Iterator[CollectiveFit]:
    """The catalog's curves of group sizes nobody measured, scaled as that of the nearest measured size would be."""
    for fit in catalog:
        alike = [curve for curve in fitted if curve.op == fit.op]
        if any(curve.ranks == fit.ranks for curve in alike):
            continue
        nearest = min(alike, key=lambda curve: abs(log2(curve.ranks / fit.ranks)), default=None)
        known = next(
            (other for other in catalog if nearest and (other.op, other.ranks) == (fit.op, nearest.ranks)), None
        )
        if nearest is None or known is None:
            yield fit
            continue
        slower = [_seconds(nearest, size) / _seconds(known, size) for size in (SMALL, LARGE)]
        yield replace(
            fit, latency=fit.latency * slower[0], root=fit.root * slower[0], bandwidth=fit.bandwidth / slower[1]
        )


def _seconds(fit: CollectiveFit, size: float) -> float:
    share = (fit.ranks - 1) / fit.ranks * (2 if fit.op == "all_reduce" else 1)
    return fit.latency + fit.root * sqrt(size) + size * share / fit.bandwidth


def curves(profile: Profile) -> tuple[CollectiveFit, ...]:
    """A curve for every collective and number of ranks of one scale-up domain, where measured at two sizes or more."""
    return tuple(curve for kind in CURVES for curve in _curves(profile, kind))


def _curves(profile: Profile, kind: str) -> list[CollectiveFit]:
    by_ranks: dict[int, list[Entry]] = {}
    for entry in _of_kind(profile, kind):
        by_ranks.setdefault(int(dict(entry.key.shape)["ranks"]), []).append(entry)
    return [_curve(kind, ranks, entries) for ranks, entries in sorted(by_ranks.items()) if len(entries) > 1]


def _of_kind(profile: Profile, kind: str) -> list[Entry]:
    """Entries of one collective inside a scale-up domain."""
    name = f"collective/{kind}"
    found = [entry for entry in profile.entries if entry.key.op == name]
    return [entry for entry in found if dict(entry.key.shape)["inside"] == dict(entry.key.shape)["ranks"]]


def _curve(kind: str, ranks: int, entries: list[Entry]) -> CollectiveFit:
    """The catalog's form without its root: latency + bytes · f / bandwidth, f = (n−1)/n, twice that for all-reduce."""
    share = (ranks - 1) / ranks * (2 if kind == "all_reduce" else 1)
    latency, rate = line((dict(entry.key.shape)["bytes"], entry.seconds) for entry in entries)
    return CollectiveFit(op=kind, ranks=ranks, latency=latency, root=0.0, bandwidth=share / rate)  # type: ignore[arg-type]


def _point_to_point(profile: Profile, constants: Constants, scale_up: ScaleUp) -> Constants:
    entries = _of_kind(profile, "send_recv")
    if len(entries) < 2:
        return constants
    latency, rate = line((dict(entry.key.shape)["bytes"], entry.seconds) for entry in entries)
    share = 1 / rate / scale_up.bandwidth
    return replace(constants, collective=replace(constants.collective, p2p_latency=latency, p2p_bandwidth=share))


def line(points: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """Latency and seconds a byte of least relative squares, both positive: Σ (1 − (a + b·x)/y)² is least."""
    terms = [(1 / y, x / y) for x, y in points]
    uu, uv, vv = sum(u * u for u, _ in terms), sum(u * v for u, v in terms), sum(v * v for _, v in terms)
    u, v = sum(u for u, _ in terms), sum(v for _, v in terms)
    determinant = uu * vv - uv * uv
    latency, rate = (u * vv - v * uv) / determinant, (v * uu - u * uv) / determinant
    if rate <= 0:
        return u / uu, 1e-15
    return (latency, rate) if latency > 0 else (0.0, v / vv)
