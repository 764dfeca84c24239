"""Every kernel a task can name: matrix products, attention, streams, scans, units and optimizers, by their op."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from windtunnel.cost.profile import Key, key
from windtunnel.cost.profile_keys import op_key, unit_key
from windtunnel.dtypes import activation
from windtunnel.measure.torch.blocks.build import build
from windtunnel.measure.torch.clock import Clock
from windtunnel.measure.torch.device import clock
from windtunnel.measure.torch.optimizer import OptimizerKernel
from windtunnel.measure.torch.units import DTYPES, UnitKernel
from windtunnel.ops.op import Attention, Gemm, GroupedGemm, Op
from windtunnel.ops.sizes import Sizes

SHORT = 0.02
"""Seconds of one sample on a CPU: long enough for its clock and for what else the machine does."""


class Timed:
    """One call, timed; on a CPU the mean of as many as fill a sample."""

    def __init__(self, named: Key, call: Callable[[], object], its: Clock) -> None:
        self._key, self._call, self._clock = named, call, its
        self._times = self._ran = 1

    def run(self) -> dict[Key, float]:
        seconds = self._clock.time(self._repeated)[1]
        if self._clock.device == "cpu" and seconds < SHORT / 2:
            self._times = max(self._times + 1, round(self._times * SHORT / max(seconds, 1e-6)))
        return {self._key: seconds / self._ran}

    def _repeated(self) -> None:
        self._ran = self._times
        for _ in range(self._times):
            self._call()


def unit(device: str, sizes: Sizes, co_runners: int = 0, sharded: bool = False, block: nn.Module | None = None) -> Unit:
    """Forward and backward of a whole unit, ours or ``block``, named by how many run beside it and by whether FSDP
    shards it."""
    its = clock(device)
    return Unit(sizes, UnitKernel(sizes, its, block, whole=not sharded), its, co_runners, sharded)


def again(device: str, sizes: Sizes, recompute: frozenset[str], co_runners: int = 0) -> Again:
    """The backward of a unit that executes again what ``recompute`` names."""
    its = clock(device)
    return Again(sizes, recompute, UnitKernel(sizes, its, build(sizes, recompute)), its, co_runners)


class Again:
    """A unit's backward, named by what it executes again."""

    def __init__(
        self, sizes: Sizes, recompute: frozenset[str], kernel: UnitKernel, its: Clock, co_runners: int
    ) -> None:
        self._key = unit_key(sizes, "backward", co_runners, again=recompute)
        self._kernel, self._least = kernel, SHORT if its.device == "cpu" else 0.0

    def run(self) -> dict[Key, float]:
        return {self._key: self._kernel.run(self._least, split=False)["backward"]}


class Unit:
    """A unit whose seconds are named by its sizes, by how many run beside it and by whether FSDP shards it."""

    def __init__(
        self, sizes: Sizes, kernel: UnitKernel, its: Clock, co_runners: int = 0, sharded: bool = False
    ) -> None:
        self._sizes, self._kernel, self._beside, self._sharded = sizes, kernel, co_runners, sharded
        self._least = SHORT if its.device == "cpu" else 0.0

    def run(self) -> dict[Key, float]:
        found = self._kernel.run(self._least)
        return {
            unit_key(self._sizes, phase, self._beside, sharded=self._sharded): seconds
            for phase, seconds in found.items()
        }


def optimizer(device: str, named: Key, count: float) -> Timed:
    """A fused optimizer step over ``count`` parameters."""
    kernel = OptimizerKernel(named.op.partition("/")[2], count, clock(device))
    return Timed(named, kernel.step, clock(device))


def op(device: str, described: Op) -> Timed:
    """A single op with random operands. Raises ValueError for a kind that is measured only inside a unit."""
    named = op_key(described)
    if named is None:
        raise ValueError(f"{described.name} runs on the network")
    match described:
        case Gemm():
            call = _gemm(described, device)
        case GroupedGemm():
            call = _grouped_gemm(described, device)
        case Attention():
            call = _attention(described, device)
        case _:
            raise ValueError(f"{described.name} is measured only inside its unit")
    return Timed(named, call, clock(device))


def _gemm(described: Gemm, device: str) -> Callable[[], object]:
    """y = x·w with operands laid out as a linear layer's pass finds them: w[n, k] as stored, x row by row."""
    dtype = DTYPES[activation(described.compute)]
    m, n, k = (max(1, round(size)) for size in (described.m, described.n, described.k))
    if described.phase == "F":
        x, w = _normal(m, k, dtype, device), _normal(n, k, dtype, device)
        return lambda: x @ w.T
    if described.phase == "B":
        x, w = _normal(m, k, dtype, device), _normal(k, n, dtype, device)
        return lambda: x @ w
    x, w = _normal(k, m, dtype, device), _normal(k, n, dtype, device)
    return lambda: x.T @ w


def _grouped_gemm(described: GroupedGemm, device: str) -> Callable[[], object]:
    dtype = DTYPES[activation(described.compute)]
    m, n, k = (max(1, round(size)) for size in (described.m, described.n, described.k))
    x = torch.randn(described.groups, m, k, dtype=dtype, device=device)
    w = torch.randn(described.groups, k, n, dtype=dtype, device=device)
    return lambda: torch.bmm(x, w)


def _attention(described: Attention, device: str) -> Callable[[], object]:
    """Causal attention forward, or backward of a graph that is kept; keys of as many heads as queries."""
    dtype = torch.bfloat16 if device != "cpu" else torch.float32
    shape = (described.batch, max(1, round(described.heads)), described.sequence // described.context)
    backward = described.phase == "B"
    q, k = (_leaf((*shape, described.qk_dim), dtype, device, backward) for _ in range(2))
    v = _leaf((*shape, described.v_dim), dtype, device, backward)
    if not backward:
        return lambda: scaled_dot_product_attention(q, k, v, is_causal=True)
    out = scaled_dot_product_attention(q, k, v, is_causal=True)
    gradient = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True)


def reference(device: str) -> Timed:
    """A large product whose time tells the clock."""
    x = _normal(4096, 4096, torch.bfloat16, device)
    return Timed(key("reference", "none", "bf16", {}), lambda: x @ x, clock(device))


def _normal(rows: int, cols: int, dtype: torch.dtype, device: str) -> Tensor:
    return torch.randn(rows, cols, dtype=dtype, device=device)


def _leaf(shape: tuple[int, ...], dtype: torch.dtype, device: str, wanted: bool) -> Tensor:
    return torch.randn(shape, dtype=dtype, device=device, requires_grad=wanted)
