"""Passes over memory: what experts with biases add, and what an op fuser takes away."""

from __future__ import annotations

import pytest

from windtunnel.catalog.constants import constants
from windtunnel.catalog.hardware import find_accelerator
from windtunnel.cost.kernels.stream import stream
from windtunnel.ops.op import Stream

H100 = find_accelerator("h100-sxm-80gb").accelerator
LATENCY = H100.gemm.launch


def seconds(name: str, **how: bool) -> float:
    op = Stream(name=name, phase="F", bytes_moved=1e9)
    return stream(op, H100, constants().stream, **how).seconds - LATENCY


def test_biases_of_experts_stretch_their_activation_alone() -> None:
    rates = constants().stream
    assert seconds("expert_activation", expert_bias=True) == pytest.approx(
        rates.expert_bias * seconds("expert_activation")
    )
    assert seconds("mlp_activation", expert_bias=True) == seconds("mlp_activation")


def test_an_op_fuser_takes_in_what_stands_between_expert_gemms() -> None:
    rates = constants().stream
    assert seconds("expert_activation", fused=True) == pytest.approx(rates.expert_fused * seconds("expert_activation"))
    assert seconds("attention_norm", fused=True) == seconds("attention_norm")
