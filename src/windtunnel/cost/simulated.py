"""The simulated cost source: every op priced from the accelerator's data sheet and measured efficiencies."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from windtunnel.cost.collectives.all_reduce import all_reduce
from windtunnel.cost.collectives.exchange import all_to_all, expert_exchange
from windtunnel.cost.collectives.placement import Placement, placements
from windtunnel.cost.collectives.ring import gather, link, nic
from windtunnel.cost.kernels.attention import attention, scan
from windtunnel.cost.kernels.gemm import gemm, grouped_gemm
from windtunnel.cost.kernels.stream import stream
from windtunnel.cost.source import Evidence, OpCost
from windtunnel.job.cluster import Cluster
from windtunnel.job.constants import Constants
from windtunnel.job.job import Job
from windtunnel.job.plan import Parallel
from windtunnel.job.software import Software
from windtunnel.ops.chunk import Unit
from windtunnel.ops.op import Attention, Collective, ExpertExchange, Gemm, GroupedGemm, Op, RingExchange, Scan, Stream


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedSource:
    """Prices ops for one job's cluster, software and group placement."""

    cluster: Cluster
    software: Software
    parallel: Parallel
    constants: Constants
    expert_bias: bool

    @property
    def placements(self) -> dict[str, Placement]:
        return _placements(self.parallel, self.cluster)

    def cost(self, op: Op) -> OpCost:
        """Seconds of one execution of ``op`` alone on the device. Raises TypeError for an op kind it does not know."""
        accelerator, constants = self.cluster.accelerator, self.constants
        match op:
            case Gemm():
                return gemm(op, accelerator, constants.gemm)
            case GroupedGemm():
                return grouped_gemm(op, accelerator, constants.gemm)
            case Attention():
                return attention(op, accelerator, self.software, constants.attention)
            case Stream():
                fused = self.software.cuda_graphs == "full_iteration"
                return stream(op, accelerator, constants.stream, expert_bias=self.expert_bias, fused=fused)
            case Scan():
                return scan(op, accelerator, constants.attention)
        return OpCost(self._network(op), "network")

    def again(self, op: Op) -> OpCost:
        """What it costs forward."""
        return self.cost(op)

    def _network(self, op: Op) -> float:
        match op:
            case Collective():
                return self.collective(op.collective, op.size, self.placements[op.group])
            case ExpertExchange():
                return self._exchange(op)
            case RingExchange():
                return self.ring_step(op.size)
        raise TypeError(f"no price for op {type(op).__name__}")

    def collective(self, kind: str, size: float, placement: Placement) -> float:
        """Seconds of a collective of ``size`` bytes (full, gathered size) over a placed group."""
        if kind == "all_reduce":
            return all_reduce(size, placement, self.cluster, self.constants.collective)
        if kind == "all_to_all":
            return all_to_all(size, placement, self.cluster, self.constants.collective, self.constants.expert)
        return gather(size, placement, self.cluster, self.constants.collective)

    def ring_step(self, size: float) -> float:
        """One hop of a context-parallel ring: the slowest edge decides."""
        constants = self.constants.collective
        if self.placements["cp"].crosses:
            fixed = constants.ring_inter_latency + self.cluster.scale_out.latency
            return size / (constants.ring_inter_bandwidth * nic(self.cluster)) + fixed
        return size / (constants.p2p_bandwidth * link(self.cluster))

    def transfer(self, size: float, placement: Placement) -> float:
        """Send ``size`` bytes to a neighbour of a group, on its real tier."""
        constants = self.constants.collective
        if placement.crosses:
            fixed = constants.p2p_latency + self.cluster.scale_out.latency
            return size / (constants.p2p_bandwidth * nic(self.cluster)) + fixed
        return size / (constants.p2p_bandwidth * link(self.cluster)) + constants.p2p_latency

    def within(self, job: Job, unit: Unit) -> SimulatedSource:  # noqa: ARG002
        """Itself: the simulated price of a whole is the sum of its ops."""
        return self

    def optimizer(self, job: Job, parameters: float) -> float | None:  # noqa: ARG002
        """None: the state traffic of the formula."""
        return None

    def traffic_evidence(self, kind: str, size: float, placement: Placement) -> Evidence:  # noqa: ARG002
        """Formulas, all of it."""
        return "simulated"

    def optimizer_evidence(self, job: Job, parameters: float) -> Evidence:  # noqa: ARG002
        """Formulas, all of it."""
        return "simulated"

    def _exchange(self, op: ExpertExchange) -> float:
        group = self.placements["ep"]
        return expert_exchange(op, group, self.cluster, self.constants.collective, self.constants.expert)


@lru_cache(maxsize=4096)
def _placements(parallel: Parallel, cluster: Cluster) -> dict[str, Placement]:
    return placements(parallel, cluster)


def simulated_source(job: Job) -> SimulatedSource:
    """The simulated source of a job."""
    return SimulatedSource(
        cluster=job.cluster,
        software=job.software,
        parallel=job.plan.parallel,
        constants=job.constants,
        expert_bias=job.model.mlp_bias,
    )
