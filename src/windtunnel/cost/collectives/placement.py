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
    return _distances(parallel, sizes)


def expert_strides(parallel: Parallel) -> dict[str, int]:
    """The same for the expert grid: etp takes the place of tp, ep its own, the replicas of experts that of dp."""
    sizes = {"tp": parallel.etp, "ep": parallel.ep, "dp": max(1, parallel.expert_dp), "pp": parallel.pp}
    found = _distances(parallel, sizes)
    return {"etp": found["tp"], "ep": found["ep"], "edp": found["dp"]}


def _distances(parallel: Parallel, sizes: dict[str, int]) -> dict[str, int]:
    distance, result = 1, {}
    for axis in parallel.order:
        if axis in sizes:
            result[axis] = distance
            distance *= sizes[axis]
    return result


def placements(parallel: Parallel, cluster: Cluster) -> dict[str, Placement]:
    """Placement of every group: dense tp, cp, pp and the union dp·cp; expert etp, ep and edp."""
    dense, expert = strides(parallel), expert_strides(parallel)
    return {
        "tp": place(parallel.tp, dense["tp"], cluster),
        "cp": place(parallel.cp, dense["cp"], cluster),
        "dp": place(parallel.dp * parallel.cp, min(dense["cp"], dense["dp"]), cluster),
        "pp": place(parallel.pp, dense["pp"], cluster),
        "etp": place(parallel.etp, expert["etp"], cluster),
        "ep": place(parallel.ep, expert["ep"], cluster),
        "edp": place(max(1, parallel.expert_dp), expert["edp"], cluster),
    }
