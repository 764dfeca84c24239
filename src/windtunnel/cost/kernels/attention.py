"""Core attention by kernel generation, and the chunked scans of linear attention."""

from __future__ import annotations

from windtunnel.cost.source import OpCost
from windtunnel.job.cluster import Accelerator, AttentionEfficiency
from windtunnel.job.constants import AttentionConstants
from windtunnel.job.software import Software
from windtunnel.ops.op import Attention, Scan

NARROW_HEAD = 64
CUDNN_IN_TORCH = "2025-06"


def generation(accelerator: Accelerator, software: Software) -> AttentionEfficiency:
    """The kernel generation the software runs on this part: its backend by name, else the part's first entry."""
    by_kernel = {entry.kernel: entry for entry in accelerator.attention}
    return by_kernel.get(kernel_name(software), accelerator.attention[0])


def kernel_name(software: Software) -> str:
    """Kernel a backend ran at a date: cuDNN fused attention replaced FlashAttention-2 in Transformer Engine containers
    from 2024-10 on."""
    if software.attention == "sdpa":
        return "flash2" if software.date < CUDNN_IN_TORCH else "te-fused"
    if software.attention == "te-fused" and software.date < "2024-10":
        return "flash2"
    return software.attention


def attention(op: Attention, accelerator: Accelerator, software: Software, constants: AttentionConstants) -> OpCost:
    """Seconds of the fused kernel of the software's generation, or of an unfused core."""
    if not op.fused:
        return _unfused(op, accelerator, constants)
    kernel = generation(accelerator, software)
    forward = op.phase == "F"
    share = (kernel.forward if forward else kernel.backward) * software.traits.attention_factor
    if op.qk_dim <= NARROW_HEAD:
        share *= constants.narrow_forward if forward else constants.narrow_backward
    if op.sinks:
        share *= constants.sinks
    latency = constants.forward_latency if forward else constants.backward_latency
    seconds = _executed_flops(op, kernel.half_length, constants) / (accelerator.peaks.half * share)
    return OpCost(latency + seconds, "compute" if seconds > latency else "latency")


def _executed_flops(op: Attention, half_length: int, constants: AttentionConstants) -> float:
    """FLOPs with the tiles a causal or windowed kernel wastes: s(s + s0)/2 pairs, or a band widened by a margin."""
    s = op.sequence
    visible: float = s + half_length
    if op.window is not None and op.window < s / 2:
        visible = min(2 * (op.window + constants.window_margin), visible)
    forward = op.batch * op.heads * s * visible * (op.qk_dim + op.v_dim) / op.context * op.hottest
    return forward if op.phase == "F" else 2.5 * forward


def _unfused(op: Attention, accelerator: Accelerator, constants: AttentionConstants) -> OpCost:
    """Full-square batched GEMMs (two forward, four backward), each the longer of its math and of the scores it writes
    or reads, and the passes over the scores between them."""
    forward = op.phase == "F"
    square = op.batch * op.heads * op.sequence**2 / op.context
    gemms = 2 * square * (op.qk_dim + op.v_dim) * (1 if forward else 2)
    passes = constants.unfused_passes_forward if forward else constants.unfused_passes_backward
    latency = constants.unfused_latency_forward if forward else constants.unfused_latency_backward
    one_pass = square * 2 / (accelerator.memory_bound * accelerator.hbm_bandwidth)
    math = gemms / (accelerator.peaks.half * constants.unfused_efficiency)
    products = max(math, (2 if forward else 4) * one_pass)
    memory = passes * one_pass
    return OpCost(products + memory + latency, "compute" if math > memory else "memory")


def scan(op: Scan, accelerator: Accelerator, constants: AttentionConstants) -> OpCost:
    math = op.flops / (accelerator.peaks.half * constants.scan_efficiency)
    memory = op.bytes_moved / (accelerator.memory_bound * accelerator.hbm_bandwidth)
    return OpCost(max(math, memory) + accelerator.gemm.launch, "compute" if math > memory else "memory")
