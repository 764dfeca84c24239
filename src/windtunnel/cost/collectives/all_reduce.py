"""All-reduce: the fastest of ring, in-switch reduction, hierarchy and tree, as a library that measures would choose."""

from __future__ import annotations

from math import ceil, log2, sqrt

from windtunnel.cost.collectives.placement import Placement
from windtunnel.cost.collectives.ring import across, gather, nearest_fit, nic
from windtunnel.job.cluster import Cluster
from windtunnel.job.constants import CollectiveConstants


def all_reduce(size: float, placement: Placement, cluster: Cluster, constants: CollectiveConstants) -> float:
    """Seconds to all-reduce ``size`` bytes over a placed group."""
    if placement.ranks <= 1 or size <= 0:
        return 0.0
    ring = 2 * gather(size, placement, cluster, constants)
    if not placement.crosses:
        return min(ring, in_switch(size, placement.ranks, cluster, ring))
    return min(ring, hierarchical(size, placement, cluster, constants), tree(size, placement, cluster, constants))


def in_switch(size: float, ranks: int, cluster: Cluster, otherwise: float) -> float:
    """The measured curve of a domain's all-reduce, reductions inside the switch (NVLS) included where it has them."""
    fit = nearest_fit("all_reduce", ranks, cluster)
    if fit is None:
        return otherwise
    return fit.latency + fit.root * sqrt(size) + 2 * size * (ranks - 1) / ranks / fit.bandwidth


def hierarchical(size: float, placement: Placement, cluster: Cluster, constants: CollectiveConstants) -> float:
    """Reduce-scatter inside the domain, all-reduce across with one shard a rank, all-gather inside."""
    inner = Placement(placement.inside, placement.inside)
    outer = Placement(placement.domains, 1)
    shard = size / placement.inside
    return 2 * gather(size, inner, cluster, constants) + 2 * across(shard, outer, cluster, constants)


def tree(size: float, placement: Placement, cluster: Cluster, constants: CollectiveConstants) -> float:
    """Two pipelined binary trees over domains, chains inside: up and down, latency in the logarithm of the domains.

    Source of the form: NVIDIA/nccl src/graph/tuning.cc, tree all-reduce: 2((n/N − 1) intra + log2(N) inter) and a
    bandwidth of 0.92 of the ring's.
    """
    chain = (placement.inside - 1) * constants.tree_inside
    hops = ceil(log2(placement.domains)) * (constants.tree_across + cluster.scale_out.latency)
    wire = constants.tree_bandwidth * constants.inter_bandwidth * nic(cluster) * placement.inside
    return 2 * (chain + hops) + 2 * size / wire
