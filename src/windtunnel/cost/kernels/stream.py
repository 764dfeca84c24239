"""Memory-bound passes: bytes over the streaming bandwidth a kernel of its kind reaches."""

from __future__ import annotations

from windtunnel.cost.source import OpCost
from windtunnel.job.cluster import Accelerator
from windtunnel.job.constants import StreamConstants
from windtunnel.ops.op import Stream


def stream(
    op: Stream, accelerator: Accelerator, constants: StreamConstants, *, expert_bias: bool = False, fused: bool = False
) -> OpCost:
    """Seconds of one pass. ``expert_bias``: experts have biases; ``fused``: what stands between their GEMMs, activation
    and casts, is in the kernels of the op fuser, which comes with full-iteration graphs."""
    seconds, latency = _PRICED[op.kind](op, accelerator, constants)
    if expert_bias and op.name == "expert_activation":
        seconds *= constants.expert_bias
    if fused and op.name.startswith("expert_"):
        seconds *= constants.expert_fused
    return OpCost(seconds + latency, "memory" if seconds > latency else "latency")


def _pass(op: Stream, accelerator: Accelerator, constants: StreamConstants) -> tuple[float, float]:
    bandwidth = accelerator.hbm_bandwidth * accelerator.memory_bound / constants.slowdown
    if op.eager:
        bandwidth *= constants.eager_share
    return op.bytes_moved / bandwidth, op.kernels * accelerator.gemm.launch


def _router(op: Stream, accelerator: Accelerator, constants: StreamConstants) -> tuple[float, float]:
    bandwidth = accelerator.hbm_bandwidth * accelerator.memory_bound / constants.slowdown
    return op.bytes_moved / bandwidth, op.kernels * constants.router_kernel


def _embedding(op: Stream, accelerator: Accelerator, constants: StreamConstants) -> tuple[float, float]:
    bandwidth = accelerator.hbm_bandwidth * constants.embedding_hbm_share
    return op.bytes_moved / bandwidth, constants.embedding_latency


def _cast(op: Stream, accelerator: Accelerator, constants: StreamConstants) -> tuple[float, float]:
    recipe = op.name.rpartition(":")[2]
    fused = constants.cast_forward if op.phase == "F" else constants.cast_backward
    moved = op.bytes_moved * cast_bytes(recipe, accelerator, constants) * fused
    return moved / (accelerator.hbm_bandwidth * constants.cast_hbm_share), constants.cast_latency


def cast_bytes(recipe: str, accelerator: Accelerator, constants: StreamConstants) -> float:
    """Bytes moved per element to quantize one operand of a recipe."""
    by_recipe = {
        "fp8_delayed": constants.cast_bytes_delayed, "mxfp8": constants.cast_bytes_mxfp8,
        "fp8_blockwise": constants.cast_bytes_blockwise, "nvfp4": constants.cast_bytes_nvfp4,
        "mxfp4": constants.cast_bytes_nvfp4,
    }  # fmt: skip
    transposes = accelerator.architecture != "blackwell"
    tensorwise = constants.cast_bytes_tensorwise_transposed if transposes else constants.cast_bytes_tensorwise
    return by_recipe.get(recipe, tensorwise)


def _permute(op: Stream, accelerator: Accelerator, constants: StreamConstants) -> tuple[float, float]:
    return op.bytes_moved / (accelerator.hbm_bandwidth * constants.permute_hbm_share), constants.permute_latency


_PRICED = {"pass": _pass, "router": _router, "embedding": _embedding, "cast": _cast, "permute": _permute}
