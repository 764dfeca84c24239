"""Rings: all-gather and reduce-scatter, inside a scale-up domain and across domains."""

from __future__ import annotations

from math import log2, sqrt

from windtunnel.cost.collectives.placement import Placement
from windtunnel.job.cluster import Cluster, CollectiveFit
from windtunnel.job.constants import CollectiveConstants


def gather(size: float, placement: Placement, cluster: Cluster, constants: CollectiveConstants) -> float:
    """Seconds to all-gather (or reduce-scatter) ``size`` bytes, the full gathered size."""
    if placement.ranks <= 1 or size <= 0:
        return 0.0
    if not placement.crosses:
        return _inside("all_gather", size, placement.ranks, cluster, constants)
    return across(size, placement, cluster, constants)


def nearest_fit(op: str, ranks: int, cluster: Cluster) -> CollectiveFit | None:
    """The measured curve of this collective whose group size is nearest."""
    fits = [fit for fit in cluster.scale_up.fits if fit.op == op]
    return min(fits, key=lambda fit: abs(log2(fit.ranks / ranks)), default=None)


def domain_bandwidth(ranks: int, cluster: Cluster, constants: CollectiveConstants) -> float:
    """Bytes/s of a ring inside a domain of fully connected or switched accelerators."""
    fit = nearest_fit("all_gather", ranks, cluster)
    bandwidth = fit.bandwidth if fit else cluster.scale_up.bandwidth * constants.link_share
    if cluster.scale_up.kind == "xgmi" and ranks < MESH:
        return bandwidth * max(ranks - 1, 1) / (MESH - 1)
    if ranks == 2 and (fit is None or fit.ranks != 2) and cluster.scale_up.kind.startswith("nvlink"):
        return bandwidth * constants.pair_bandwidth
    return bandwidth


def _inside(op: str, size: float, ranks: int, cluster: Cluster, constants: CollectiveConstants) -> float:
    fit = nearest_fit(op, ranks, cluster)
    latency = fit.latency if fit else cluster.scale_up.latency
    root = fit.root if fit else 0.0
    growth = 1 + constants.latency_growth * log2(max(1.0, ranks / 8))
    bandwidth = domain_bandwidth(ranks, cluster, constants)
    return latency * growth + root * sqrt(size) + size * (ranks - 1) / ranks / bandwidth


def across(size: float, placement: Placement, cluster: Cluster, constants: CollectiveConstants) -> float:
    """A ring over domains; each of the g members inside brings its own NIC."""
    n, g = placement.ranks, placement.inside
    near = min(n - 1, constants.inter_far_ranks)
    latency = constants.inter_step * near + constants.inter_step_far * max(0.0, n - 1 - constants.inter_far_ranks)
    wire = nic(cluster) * g
    if g > 1:
        wire = min(domain_bandwidth(g, cluster, constants) * g / (g - 1), wire)
    return latency + cluster.scale_out.latency + size * (n - 1) / n / (constants.inter_bandwidth * wire)


def nic(cluster: Cluster) -> float:
    """Scale-out bytes/s of one accelerator, one direction, after oversubscription."""
    return cluster.scale_out.bandwidth / cluster.scale_out.oversubscription


def link(cluster: Cluster) -> float:
    """Scale-up bytes/s between two accelerators, one direction: a mesh gives each pair one of its links."""
    mesh = cluster.scale_up.kind == "xgmi"
    return cluster.scale_up.bandwidth / (MESH - 1) if mesh else cluster.scale_up.bandwidth


MESH = 8
"""Accelerators of a fully connected xGMI node: a pair has one of the seven links."""
