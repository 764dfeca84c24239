"""Where the members of a process group sit: how many share a scale-up domain."""

from __future__ import annotations

from dataclasses import dataclass

from windtunnel.job.cluster import Cluster
from windtunnel.job.plan import Parallel


@dataclass(frozen=True, slots=True)
class Placement:
    """``ranks`` members, ``inside`` of them in one scale-up domain."""

    ranks: int
    inside: int

    @property
    def domains(self) -> int:
        return max(1, self.ranks // self.inside)

    @property
    def crosses(self) -> bool:
        return self.inside < self.ranks


def place(ranks: int, stride: int, cluster: Cluster) -> Placement:
    """Members ``stride`` ranks apart, rank 0 first in its domain; domains fill in rank order."""
    domain = cluster.scale_up.domain_size
    inside = max(1, min(ranks, domain // max(1, stride)))
    while ranks % inside:
        inside -= 1
    return Placement(ranks, inside)


def strides(parallel: Parallel) -> dict[str, int]:
    """Distance in ranks between neighbours of each dense group, for the group order from innermost out."""
    sizes = {"tp": parallel.tp, "cp": parallel.cp, "dp": parallel.dp, "pp": parallel.pp}
    distance, result = 1, {}
    for axis in parallel.order:
        if axis in sizes:
            result[axis] = distance
            distance *= sizes[axis]
    return result


def placements(parallel: Parallel, cluster: Cluster) -> dict[str, Placement]:
    """Placement of every group: dense tp, cp, dp, pp; their union dp·cp; expert etp, ep and edp inside one stage.

    Expert groups lie etp innermost, then ep, then their replicas, over the ranks of one stage.
    """
    distance = strides(parallel)
    inner = min(distance["cp"], distance["dp"])
    stage = distance["pp"] if parallel.order[-1] != "pp" else 1
    return {
        "tp": place(parallel.tp, distance["tp"], cluster),
        "cp": place(parallel.cp, distance["cp"], cluster),
        "dp": place(parallel.dp * parallel.cp, inner, cluster),
        "pp": place(parallel.pp, distance["pp"], cluster),
        "etp": place(parallel.etp, 1, cluster),
        "ep": place(parallel.ep, parallel.etp * (stage if stage < distance["dp"] else 1), cluster),
        "edp": place(max(1, parallel.expert_dp), parallel.etp * parallel.ep, cluster),
    }
