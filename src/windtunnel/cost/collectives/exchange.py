"""All-to-all: of experts' tokens through a dispatcher, and of heads against sequence."""

from __future__ import annotations

from math import sqrt

from windtunnel.cost.collectives.placement import Placement
from windtunnel.cost.collectives.ring import domain_bandwidth, gather, nearest_fit, nic
from windtunnel.job.cluster import Cluster
from windtunnel.job.constants import CollectiveConstants, ExpertConstants
from windtunnel.ops.op import ExpertExchange


def all_to_all(
    size: float, placement: Placement, cluster: Cluster, collective: CollectiveConstants, expert: ExpertConstants
) -> float:
    """``size`` bytes leave each rank, spread evenly over the group; inside and across domains run side by side."""
    n, g = placement.ranks, placement.inside
    if n <= 1 or size <= 0:
        return 0.0
    bandwidth = expert.scale_up_efficiency * domain_bandwidth(g, cluster, collective)
    if not placement.crosses:
        return latency(g, cluster) + _root(g, cluster) * sqrt(size) + size * (n - 1) / n / bandwidth
    inside = size * (g - 1) / n / (expert.inside_share * bandwidth)
    across = size * (n - g) / n / (expert.scale_out_efficiency * nic(cluster))
    return expert.inter_latency + cluster.scale_out.latency + max(inside, across)


def expert_exchange(
    op: ExpertExchange,
    placement: Placement,
    cluster: Cluster,
    collective: CollectiveConstants,
    expert: ExpertConstants,
) -> float:
    """Seconds of one dispatch or combine.

    alltoall sends every copy; fused dispatchers send a token once per distinct rank over scale-up and once per
    distinct domain over the NIC; allgather sends every token everywhere.
    """
    if op.dispatcher == "alltoall":
        return all_to_all(op.experts_per_token * op.tokens * op.row_bytes, placement, cluster, collective, expert)
    if op.dispatcher == "allgather":
        return gather(op.tokens * op.row_bytes * placement.ranks, placement, cluster, collective)
    return _deduplicated(op, placement, cluster, collective, expert)


def distinct_targets(ranks: int, copies: int) -> float:
    """Expected distinct ranks that ``copies`` independent, uniform choices among ``ranks`` fall on."""
    return ranks * (1 - (1 - 1 / ranks) ** copies)


def _deduplicated(
    op: ExpertExchange,
    placement: Placement,
    cluster: Cluster,
    collective: CollectiveConstants,
    expert: ExpertConstants,
) -> float:
    n, g = placement.ranks, placement.inside
    row = op.tokens * op.row_bytes
    bandwidth = expert.scale_up_efficiency * domain_bandwidth(g, cluster, collective)
    inside = row * distinct_targets(n, op.experts_per_token) * (g - 1) / g / bandwidth if g > 1 else 0.0
    if not placement.crosses:
        return expert.fused_latency + inside
    domains = placement.domains
    reached = distinct_targets(domains, op.experts_per_token)
    if op.groups_per_token is not None:
        reached = min(reached, op.groups_per_token)
    across = row * reached * (domains - 1) / domains / (expert.scale_out_efficiency * nic(cluster))
    return expert.fused_latency + cluster.scale_out.latency + max(inside, across)


def latency(ranks: int, cluster: Cluster) -> float:
    fit = nearest_fit("all_to_all", ranks, cluster)
    return fit.latency if fit else cluster.scale_up.latency


def _root(ranks: int, cluster: Cluster) -> float:
    fit = nearest_fit("all_to_all", ranks, cluster)
    return fit.root if fit else 0.0
