"""The host floor: seconds a framework needs to launch what a chunk executes.

A chunk lasts at least as long as its launches. Counts are forward launches of a layer; backward takes more.
"""

from __future__ import annotations

from dataclasses import dataclass

from windtunnel.dtypes import is_quantized
from windtunnel.elementwise import Number
from windtunnel.job.job import Job
from windtunnel.job.model import LayerSpec


@dataclass(frozen=True, slots=True)
class HostSeconds:
    """Host seconds of forward and backward."""

    forward: Number
    backward: Number

    def __add__(self, other: HostSeconds) -> HostSeconds:
        return HostSeconds(self.forward + other.forward, self.backward + other.backward)


NOTHING = HostSeconds(0.0, 0.0)


def launch_seconds(job: Job) -> float:
    """Seconds of one launch on this host with this software generation; 0 where one program is dispatched whole."""
    constants, accelerator = job.constants.host, job.cluster.accelerator
    era = job.software.traits.host_era
    if job.software.cuda_graphs == "full_iteration" or accelerator.is_tpu or era == "xla":
        return 0.0
    if job.cluster.host.kind == "grace":
        seconds = constants.launch_grace
    elif accelerator.architecture == "ampere" or accelerator.vendor == "amd":
        seconds = constants.launch_slow
    else:
        seconds = constants.launch_x86
    return seconds * {"eager": constants.era_eager, "rocm": constants.era_rocm}.get(era, 1.0)


def layer_host(job: Job, layer: LayerSpec, recompute: frozenset[str]) -> HostSeconds:
    """Host seconds of one layer for one micro-batch."""
    launch, constants = launch_seconds(job), job.constants.host
    if launch == 0.0:
        return NOTHING
    if job.plan.overlap.ep_comm and layer.feed_forward == "moe":
        launch *= constants.overlap_growth
    dense, moe, experts = _dense(job, layer), _moe(job, layer), _experts(job, layer)
    forward = dense + moe
    again = 1.0 if "full" in recompute else constants.per_op_recompute if "per_op" in recompute else 0.0
    share = constants.expert_forward_share
    return HostSeconds(
        launch * (forward + share * experts),
        launch * (forward * (constants.backward + again) + (1 - share + share * again) * experts),
    )


def chunk_host(job: Job, *, head: bool) -> HostSeconds:
    """Bookkeeping of a chunk, and launches of head and loss."""
    constants = job.constants.host
    launches = (constants.chunk + (constants.head if head else 0.0)) * launch_seconds(job)
    return HostSeconds(launches, launches * constants.backward)


def _dense(job: Job, layer: LayerSpec) -> float:
    constants, parallel, software = job.constants.host, job.plan.parallel, job.software
    fused = software.attention != "unfused" and (software.traits.fused_kernels or software.compiled)
    launches = constants.dense_layer + (0.0 if fused else constants.unfused)
    launches += constants.quantized if is_quantized(job.plan.precision.compute) else 0.0
    collectives = 0 if parallel.tp == 1 else 4 if parallel.sequence_parallel else 2
    launches += constants.tensor_parallel * collectives
    launches += constants.latent_attention if job.model.mla is not None else 0.0
    launches += constants.context_step * (parallel.cp - 1)
    if layer.mixer == "none" or layer.feed_forward == "none":
        launches /= 2
    if software.compiled:
        launches *= constants.compiled
    return launches * (constants.graph_dense if _captured(job, "attn") else 1.0)


def _moe(job: Job, layer: LayerSpec) -> float:
    moe, constants = job.model.moe, job.constants.host
    if layer.feed_forward != "moe" or moe is None:
        return 0.0
    launches = constants.moe_layer
    launches += constants.moe_quantized if is_quantized(job.plan.precision.compute) else 0.0
    launches += constants.moe_alltoall if job.plan.moe.dispatcher == "alltoall" else constants.moe_dispatcher
    launches += constants.moe_shared if moe.shared_expert_intermediate_size else 0.0
    if not job.plan.moe.grouped_gemm:
        launches += constants.moe_ungrouped_expert * moe.num_experts / job.plan.parallel.ep
    return launches * constants.moe_factor * (constants.graph_moe if _captured(job, "moe_router") else 1.0)


def _experts(job: Job, layer: LayerSpec) -> float:
    """Launches of the local experts, forward and backward together."""
    moe, constants = job.model.moe, job.constants.host
    if layer.feed_forward != "moe" or moe is None:
        return 0.0
    quantized = is_quantized(job.plan.precision.compute)
    each = constants.expert_quantized if quantized else constants.expert_bf16
    if job.plan.moe.capacity_factor is not None:
        each *= constants.expert_capacity
    return each * moe.num_experts / job.plan.parallel.ep


def _captured(job: Job, scope: str) -> bool:
    software = job.software
    return software.cuda_graphs == "partial" and scope in (software.cuda_graph_scope or frozenset())
