"""Constants of the simulated cost source. Values live in ``data/calibration`` with a birth certificate each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmConstants:
    """The soft-wave predictor: prologue depth by recipe, tile penalty, hard share of wave quantisation."""

    k0_bf16: float
    k0_fp8: float
    k0_fp8_blockwise: float
    k0_mxfp8: float
    k0_nvfp4: float
    tile_penalty: float
    hard_wave_share: float
    hbm_share: float
    weight_gradient: float
    grouped_half_rows: float
    grouped_half_rows_weight: float
    grouped_efficiency: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConstants:
    """Memory-bound passes: factors on the accelerator's streaming efficiency, and fixed seconds."""

    slowdown: float
    eager_share: float
    embedding_hbm_share: float
    embedding_latency: float
    cast_hbm_share: float
    cast_forward: float
    cast_backward: float
    cast_latency: float
    cast_bytes_tensorwise_transposed: float
    cast_bytes_tensorwise: float
    cast_bytes_delayed: float
    cast_bytes_mxfp8: float
    cast_bytes_nvfp4: float
    cast_bytes_blockwise: float
    weight_cast_bytes: float
    weight_cast_hbm_share: float
    permute_hbm_share: float
    permute_latency: float
    router_kernel: float
    expert_bias: float
    expert_fused: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionConstants:
    forward_latency: float
    backward_latency: float
    narrow_forward: float
    narrow_backward: float
    sinks: float
    window_margin: float
    unfused_efficiency: float
    unfused_passes_forward: float
    unfused_passes_backward: float
    unfused_latency_forward: float
    unfused_latency_backward: float
    scan_efficiency: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveConstants:
    """Rings, trees and what surrounds them."""

    latency_growth: float
    pair_bandwidth: float
    link_share: float
    inter_step: float
    inter_step_far: float
    inter_far_ranks: float
    inter_bandwidth: float
    tree_inside: float
    tree_across: float
    tree_bandwidth: float
    slowdown: float
    beside_gemm: float
    ring_hidden: float
    ring_step_forward: float
    ring_step_backward: float
    ring_inter_bandwidth: float
    ring_inter_latency: float
    p2p_bandwidth: float
    p2p_latency: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertConstants:
    """Token exchange between experts."""

    scale_up_efficiency: float
    scale_out_efficiency: float
    inside_share: float
    inter_latency: float
    fused_latency: float
    units_held: float
    host_wait: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HostConstants:
    """Seconds of one launch, and launches of a layer by what it contains."""

    launch_x86: float
    launch_grace: float
    launch_slow: float
    era_eager: float
    era_rocm: float
    sharpness: float
    dense_layer: float
    unfused: float
    quantized: float
    tensor_parallel: float
    latent_attention: float
    context_step: float
    moe_layer: float
    moe_quantized: float
    moe_alltoall: float
    moe_dispatcher: float
    moe_shared: float
    moe_ungrouped_expert: float
    moe_factor: float
    expert_bf16: float
    expert_quantized: float
    expert_forward_share: float
    expert_capacity: float
    backward: float
    chunk: float
    head: float
    graph_dense: float
    graph_moe: float
    compiled: float
    overlap_growth: float
    per_op_recompute: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DataParallelConstants:
    reduce_hidden: float
    fsdp_hidden: float
    window_growth: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepConstants:
    per_op_gemm: float
    per_op_communication: float
    optimizer_fixed: float
    optimizer_muon: float
    jitter: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryConstants:
    """Bytes outside the model: workspaces, context, communicators."""

    workspace: float
    workspace_moe: float
    workspace_old: float
    context: float
    communicator: float
    rocm_ratio: float
    rocm_overhead: float
    tpu_overhead: float
    expandable_ratio: float
    reserved_spread: float
    unsharded_residual: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    gemm: GemmConstants
    stream: StreamConstants
    attention: AttentionConstants
    collective: CollectiveConstants
    expert: ExpertConstants
    host: HostConstants
    data_parallel: DataParallelConstants
    step: StepConstants
    memory: MemoryConstants

    def having(self, values: Mapping[str, float]) -> Constants:
        """These constants with other values by ``group.name``. TypeError or AttributeError: an unknown one."""
        groups: dict[str, dict[str, float]] = {}
        for name, value in values.items():
            group, _, item = name.partition(".")
            groups.setdefault(group, {})[item] = value
        return replace(self, **{group: replace(getattr(self, group), **items) for group, items in groups.items()})
