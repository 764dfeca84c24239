"""Number formats: bytes per element, and what each compute recipe multiplies in."""

from __future__ import annotations

from typing import Literal, get_args

Storage = Literal["fp32", "bf16", "fp16", "fp8", "int8", "none"]
Compute = Literal[
    "fp32", "tf32", "fp16", "bf16", "fp8_delayed", "fp8_tensorwise", "fp8_rowwise", "fp8_blockwise",
    "mxfp8", "nvfp4", "mxfp4", "int8",
]  # fmt: skip
Peak = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "fp6", "fp4", "int8"]

STORAGES: tuple[str, ...] = get_args(Storage)
COMPUTES: tuple[str, ...] = get_args(Compute)

BYTES: dict[str, float] = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1, "fp4": 0.5, "none": 0}

_MULTIPLIES_IN: dict[str, Peak] = {
    "fp32": "fp32", "tf32": "tf32", "fp16": "fp16", "bf16": "bf16", "int8": "int8",
    "fp8_delayed": "fp8", "fp8_tensorwise": "fp8", "fp8_rowwise": "fp8", "fp8_blockwise": "fp8", "mxfp8": "fp8",
    "nvfp4": "fp4", "mxfp4": "fp4",
}  # fmt: skip

_SAVED: dict[str, float] = {
    "mxfp8": 1 + 1 / 32,
    "fp8_blockwise": 1 + 4 / 128,
    "nvfp4": 0.5 + 1 / 16,
    "mxfp4": 0.5 + 1 / 32,
}

_HIGH_PRECISION = frozenset({"fp32", "tf32", "fp16", "bf16"})


def operand(compute: str) -> Peak:
    """The dtype whose peak rate a GEMM of this recipe runs at."""
    return _MULTIPLIES_IN[compute]


def is_quantized(compute: str) -> bool:
    """Whether a recipe casts GEMM inputs to a narrower format than the activations it receives."""
    return compute not in _HIGH_PRECISION


def activation(compute: str) -> Storage:
    """The dtype of activations between GEMMs: quantized recipes keep them in bf16."""
    if compute in ("fp32", "tf32"):
        return "fp32"
    return "fp16" if compute == "fp16" else "bf16"


def saved_operand(compute: str) -> float:
    """Bytes per element of a quantized GEMM input kept for the weight gradient, scales included."""
    return _SAVED.get(compute, BYTES[operand(compute)])
