"""All-to-all: of experts' tokens through a dispatcher, and of heads against sequence."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from windtunnel.cost.collectives.placement import Placement
from windtunnel.cost.collectives.ring import domain_bandwidth, gather, nearest_fit, nic
from windtunnel.job.cluster import Cluster
from windtunnel.job.constants import CollectiveConstants, ExpertConstants
from windtunnel.ops.op import ExpertExchange


@dataclass(frozen=True, slots=True)
class Sent:
    """Bytes one rank puts on the scale-up fabric, and on its NIC."""

    inside: float
    across: float


def spread(size: float, placement: Placement) -> Sent:
    """``size`` bytes of a rank, spread evenly over the whole group, its own part included."""
    n, g = placement.ranks, placement.inside
    return Sent(size * (g - 1) / n, size * (n - g) / n)


def exchange_bytes(op: ExpertExchange, placement: Placement) -> Sent:
    """Bytes one rank sends in a dispatch or receives in a combine, on average over balanced routing.

    alltoall sends every copy, allgather every token to every rank. Fused dispatchers send a token once per distinct
    domain over the NIC, to the rank of the sender's own index there, and from it once per distinct rank over scale-up.
    """
    row = op.tokens * op.row_bytes
    if op.dispatcher == "alltoall":
        return spread(op.experts_per_token * row, placement)
    if op.dispatcher == "allgather":
        return spread(row * placement.ranks, placement)
    g, domains = placement.inside, placement.domains
    inside = row * distinct_targets(placement.ranks, op.experts_per_token) * (g - 1) / g
    reached = distinct_targets(domains, op.experts_per_token)
    if op.groups_per_token is not None:
        reached = min(reached, op.groups_per_token)
    return Sent(inside, row * reached * (domains - 1) / domains)


def distinct_targets(ranks: int, copies: int) -> float:
    """Expected distinct ranks that ``copies`` independent, uniform choices among ``ranks`` fall on."""
    return ranks * (1 - (1 - 1 / ranks) ** copies)


def all_to_all(
    size: float, placement: Placement, cluster: Cluster, collective: CollectiveConstants, expert: ExpertConstants
) -> float:
    """``size`` bytes of each rank, spread evenly over the group; inside and across domains run side by side."""
    if placement.ranks <= 1 or size <= 0:
        return 0.0
    sent = spread(size, placement)
    bandwidth = expert.scale_up_efficiency * domain_bandwidth(placement.inside, cluster, collective)
    if not placement.crosses:
        root = _root(placement.ranks, cluster) * sqrt(size)
        return latency(placement.ranks, cluster) + root + sent.inside / bandwidth
    inside = sent.inside / (expert.inside_share * bandwidth)
    across = sent.across / (expert.scale_out_efficiency * nic(cluster))
    return expert.inter_latency + cluster.scale_out.latency + max(inside, across)


def expert_exchange(
    op: ExpertExchange,
    placement: Placement,
    cluster: Cluster,
    collective: CollectiveConstants,
    expert: ExpertConstants,
) -> float:
    """Seconds of one dispatch or combine."""
    row = op.tokens * op.row_bytes
    if op.dispatcher == "alltoall":
        return all_to_all(op.experts_per_token * row, placement, cluster, collective, expert)
    if op.dispatcher == "allgather":
        return gather(row * placement.ranks, placement, cluster, collective)
    sent = exchange_bytes(op, placement)
    bandwidth = expert.scale_up_efficiency * domain_bandwidth(placement.inside, cluster, collective)
    inside = sent.inside / bandwidth
    if not placement.crosses:
        return expert.fused_latency + inside
    across = sent.across / (expert.scale_out_efficiency * nic(cluster))
    return expert.fused_latency + cluster.scale_out.latency + max(inside, across)


def latency(ranks: int, cluster: Cluster) -> float:
    fit = nearest_fit("all_to_all", ranks, cluster)
    return fit.latency if fit else cluster.scale_up.latency


def _root(ranks: int, cluster: Cluster) -> float:
    fit = nearest_fit("all_to_all", ranks, cluster)
    return fit.root if fit else 0.0
