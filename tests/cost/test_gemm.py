"""GEMM prices: near published shapes once the clock is the sustained one, and bounded by the peak."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.catalog.constants import constants
from windtunnel.catalog.hardware import find_accelerator
from windtunnel.cost.kernels.gemm import efficiency, gemm, grouped_gemm, peak
from windtunnel.ops.op import Gemm, GroupedGemm

H100 = find_accelerator("h100-sxm-80gb").accelerator


def seconds(m: float, n: float, k: float, compute: str = "bf16", phase: str = "F") -> float:
    op = Gemm(name="g", phase=phase, m=m, n=n, k=k, compute=compute)  # type: ignore[arg-type]
    return gemm(op, H100, constants().gemm).seconds


@given(*(st.integers(16, 65536) for _ in range(3)))
def test_no_shape_beats_the_sustained_peak(m: int, n: int, k: int) -> None:
    assert seconds(m, n, k) >= 2 * m * n * k / (peak(H100, "bf16") * efficiency(H100, "bf16"))


def test_large_shapes_reach_the_sustained_efficiency() -> None:
    reached = 2 * 16384**3 / seconds(16384, 16384, 16384) / peak(H100, "bf16")
    assert reached == pytest.approx(efficiency(H100, "bf16"), rel=0.05)


@pytest.mark.parametrize(
    ("m", "n", "k", "teraflops"),
    [(4096, 24576, 1536, 1125), (4096, 7168, 16384, 1426), (4096, 4096, 7168, 1265), (4096, 7168, 2048, 1168)],
)
def test_published_fp8_shapes_are_met_within_a_fifth(m: int, n: int, k: int, teraflops: float) -> None:
    """DeepGEMM README at 55ab91f, H800, fp8 blocks, bursts without casts: the sustained clock is slower by design."""
    reached = 2 * m * n * k / seconds(m, n, k, "fp8_blockwise") / 1e12
    assert 0.75 < reached / teraflops < 1.05


def test_the_weight_gradient_of_an_expert_moves_its_fp32_accumulator_however_few_its_tokens() -> None:
    op = GroupedGemm(name="e", phase="W", groups=32, m=4096, n=2048, k=16, compute="bf16", accumulates_fp32=True)
    accumulator = 32 * 8 * 4096 * 2048
    assert grouped_gemm(op, H100, constants().gemm).seconds >= accumulator / H100.hbm_bandwidth


def test_many_small_groups_cost_as_much_as_one_large_at_least() -> None:
    few = GroupedGemm(name="e", phase="F", groups=1, m=8192, n=4096, k=2048, compute="bf16")
    many = GroupedGemm(name="e", phase="F", groups=64, m=128, n=4096, k=2048, compute="bf16")
    assert few.flops == many.flops
    price = [grouped_gemm(op, H100, constants().gemm).seconds for op in (few, many)]
    assert price[0] < price[1]
