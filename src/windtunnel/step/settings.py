"""What of a job decides how op seconds become layer, chunk and step seconds."""

from __future__ import annotations

from dataclasses import dataclass

from windtunnel.job.constants import Constants
from windtunnel.job.job import Job
from windtunnel.job.plan import MoePlan, Offload, Overlap


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    overlap: Overlap
    moe: MoePlan
    offload: Offload
    tp: int
    cp: int
    full_graph: bool
    pcie_bandwidth: float
    link: float
    """Bytes/s of the scale-up fabric."""
    constants: Constants


def settings(job: Job) -> Settings:
    return Settings(
        overlap=job.plan.overlap,
        moe=job.plan.moe,
        offload=job.plan.offload,
        tp=job.plan.parallel.tp,
        cp=job.plan.parallel.cp,
        full_graph=job.software.cuda_graphs == "full_iteration",
        pcie_bandwidth=job.cluster.host.pcie_bandwidth,
        link=job.cluster.scale_up.bandwidth,
        constants=job.constants,
    )
