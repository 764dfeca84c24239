"""Matrix products: soft wave quantisation under a sustained clock, bounded by memory traffic.

Source of the form: `recommended_model` fitted on 5,491 measured shapes of each of 7 accelerators, error 3.6–5.6 %.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil

from windtunnel.cost.source import OpCost
from windtunnel.dtypes import BYTES, operand
from windtunnel.job.cluster import Accelerator
from windtunnel.job.constants import GemmConstants
from windtunnel.ops.moe import pad_rows
from windtunnel.ops.op import Gemm, GroupedGemm

TILES = ((128, 256), (256, 128), (128, 128), (256, 256), (64, 256), (256, 64), (128, 64), (64, 128))
FULL_TILE = 128 * 256


def peak(accelerator: Accelerator, compute: str) -> float:
    """Dense FLOP/s of a recipe's operand dtype; bf16 where the part has no narrower rate."""
    return accelerator.peaks.of(operand(compute)) or accelerator.peaks.half


def efficiency(accelerator: Accelerator, compute: str) -> float:
    """Sustained share of the peak for large shapes."""
    table = accelerator.gemm
    by_recipe = {
        "fp8_blockwise": table.fp8_blockwise, "mxfp8": table.mxfp8, "nvfp4": table.nvfp4, "mxfp4": table.nvfp4,
        "fp8_delayed": table.fp8, "fp8_tensorwise": table.fp8, "fp8_rowwise": table.fp8, "int8": table.fp8,
    }  # fmt: skip
    return by_recipe.get(compute, table.bf16)


def prologue(compute: str, constants: GemmConstants) -> float:
    """Depth of reduction a tile needs to fill its pipeline, in elements of k."""
    by_recipe = {
        "fp8_blockwise": constants.k0_fp8_blockwise, "mxfp8": constants.k0_mxfp8, "nvfp4": constants.k0_nvfp4,
        "mxfp4": constants.k0_nvfp4, "fp8_delayed": constants.k0_fp8, "fp8_tensorwise": constants.k0_fp8,
        "fp8_rowwise": constants.k0_fp8, "int8": constants.k0_fp8,
    }  # fmt: skip
    return by_recipe.get(compute, constants.k0_bf16)


def gemm(op: Gemm, accelerator: Accelerator, constants: GemmConstants) -> OpCost:
    factor = constants.weight_gradient if op.phase == "W" else 1.0
    math = _math_seconds(op.m, op.n, op.k, 1, op.compute, accelerator, constants) * factor
    memory = op.bytes_moved / op.count / (constants.hbm_share * accelerator.hbm_bandwidth)
    return _total(op.count * max(math, memory), op.count * accelerator.gemm.launch, math >= memory)


def grouped_gemm(op: GroupedGemm, accelerator: Accelerator, constants: GemmConstants) -> OpCost:
    """``groups`` equal problems as one batch: tiles are summed before they are spread over the compute units.

    Rows of one expert are padded to the recipe's alignment and lose efficiency when few: M/(M + half).
    """
    rows = op.k if op.phase == "W" else op.m
    multiple = 16 if BYTES[operand(op.compute)] >= 2 else 32
    rows = pad_rows(rows, multiple) if op.padded else rows
    m, k = (op.m, rows) if op.phase == "W" else (rows, op.k)
    half = constants.grouped_half_rows_weight if op.phase == "W" else constants.grouped_half_rows
    share = constants.grouped_efficiency * rows / (rows + half)
    math = _math_seconds(m, op.n, k, op.groups, op.compute, accelerator, constants) / max(min(share, 1.0), 1e-3)
    width = BYTES[operand(op.compute)]
    moved = op.groups * (width * (m * k + k * op.n) + (8.0 if op.accumulates_fp32 else 2.0) * m * op.n)
    memory = moved / (constants.hbm_share * accelerator.hbm_bandwidth)
    launches = 1 if op.grouped else op.groups
    return _total(max(math, memory), launches * accelerator.gemm.launch, math >= memory)


def _total(seconds: float, launch: float, compute_bound: bool) -> OpCost:
    if launch > seconds:
        return OpCost(launch + seconds, "latency")
    return OpCost(launch + seconds, "compute" if compute_bound else "memory")


@lru_cache(maxsize=65536)
def _math_seconds(
    m: float, n: float, k: float, groups: int, compute: str, accelerator: Accelerator, constants: GemmConstants
) -> float:
    """Best tile of min over T: waves · 2 tm tn (k + k0) · CU / (penalty · peak · eta); waves part hard, part fluid."""
    if min(m, n, k) <= 0:
        return 0.0
    units = accelerator.compute_units
    depth = k + prologue(compute, constants)
    best = min(_tile_work(m, n, groups, tile, units, constants) for tile in TILES)
    return 2 * best * depth * units / (peak(accelerator, compute) * efficiency(accelerator, compute))


def _tile_work(m: float, n: float, groups: int, tile: tuple[int, int], units: int, constants: GemmConstants) -> float:
    rows, columns = tile
    waves = groups * ceil(m / rows) * ceil(n / columns) / units
    hard = constants.hard_wave_share
    soft = hard * ceil(waves) + (1 - hard) * max(waves, 1.0)
    penalty: float = min(1.0, (rows * columns / FULL_TILE) ** constants.tile_penalty)
    return soft * rows * columns / penalty
