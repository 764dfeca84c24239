"""Bytes per weight: as stored, and in the quantized copies that GEMMs read."""

from __future__ import annotations

from windtunnel.dtypes import BYTES, is_quantized, saved_operand
from windtunnel.job.job import Job
from windtunnel.ops.weights import count, embedding_weights, head_weights, total_parameters

TRANSPOSED = frozenset({"hopper", "ada"})
"""Architectures whose fp8 GEMMs take one layout only, so that the input gradient needs a transposed copy."""


def weight_bytes(job: Job) -> float:
    """Bytes per local parameter, averaged over the model: embedding and head stay in high precision.

    ``params: fp8`` stores quantized weights alone. Source: NVIDIA/TransformerEngine issue 1261; Hopper keeps 2 bytes
    (fp8 and its transpose), 4 with the bf16 weight beside them; Blackwell 1, and 2 for mxfp8, whose rows and columns
    are scaled apart.
    """
    precision = job.plan.precision
    kind = "stored" if precision.params == "fp8" else job.software.traits.quantized_weights
    high = BYTES["bf16"] if precision.params == "fp8" else BYTES[precision.params]
    if not is_quantized(precision.compute) or kind == "untouched":
        return high if precision.params != "fp8" else 2 * BYTES["fp8"]
    share, copies = _multiplied(job), quantized_bytes(job)
    return high + share * copies if kind == "copied" else share * copies + (1 - share) * high


def quantized_bytes(job: Job) -> float:
    """Bytes of the quantized copies of one weight, scales included."""
    compute, architecture = job.plan.precision.compute, job.cluster.accelerator.architecture
    scaled_by_block = compute in ("mxfp8", "mxfp4", "nvfp4", "fp8_blockwise")
    layouts = 2 if scaled_by_block or architecture in TRANSPOSED else 1
    return layouts * saved_operand(compute)


def _multiplied(job: Job) -> float:
    """Share of the parameters outside embedding and head."""
    ends = count((*embedding_weights(job.model), *head_weights(job.model)))
    return 1 - ends / total_parameters(job.model)
