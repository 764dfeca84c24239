"""Optimizer steps over as many parameters as a rank holds."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from windtunnel.measure.torch.clock import Clock

TENSOR = 2**20
"""Elements of one parameter tensor of the measurement."""


def optimizer(name: str, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """The fused torch optimizer of a plan's name. Raises ValueError for one torch has not."""
    known = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "sgd": torch.optim.SGD}
    if name not in known:
        raise ValueError(f"torch has no fused {name}")
    return known[name](list(parameters), lr=1e-4, fused=True)


class OptimizerKernel:
    """A step over ``count`` parameters in fp32 with gradients at hand."""

    def __init__(self, name: str, count: float, clock: Clock) -> None:
        whole, rest = divmod(max(1, round(count)), TENSOR)
        sizes = [TENSOR] * whole + ([rest] if rest else [])
        weights = [nn.Parameter(torch.randn(size, device=clock.device)) for size in sizes]
        for weight in weights:
            weight.grad = torch.randn_like(weight)
        self._clock, self._optimizer = clock, optimizer(name, weights)
        self.step = self._optimizer.step

    def run(self, times: int = 1) -> float:
        """Mean seconds of a step."""
        return self._clock.time(lambda: [self._optimizer.step() for _ in range(times)])[1] / times
