"""Values that describe a training job; frozen, in SI units, free of IO."""

from windtunnel.job.cluster import Accelerator, Cluster, Host, Peaks, ScaleOut, ScaleUp
from windtunnel.job.job import Job, Origin, Run
from windtunnel.job.model import LayerSpec, ModelSpec
from windtunnel.job.plan import Chunk, Plan
from windtunnel.job.record import Record
from windtunnel.job.software import Software

__all__ = [
    "Accelerator", "Chunk", "Cluster", "Host", "Job", "LayerSpec", "ModelSpec", "Origin", "Peaks", "Plan", "Record",
    "Run", "ScaleOut", "ScaleUp", "Software",
]  # fmt: skip
