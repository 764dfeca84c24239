"""Tensor-parallel regions with real collectives: the borders of a block where a group of ranks shares it."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


class TensorParallel:
    """A group's borders; with ``sequence`` parallelism tokens are gathered on entering and scattered on leaving."""

    def __init__(self, group: dist.ProcessGroup | None = None, *, sequence: bool) -> None:
        self.group, self.sequence = group, sequence

    def enter(self, x: Tensor) -> Tensor:
        entered: Tensor = (_Gather if self.sequence else _Copy).apply(x, self.group)
        return entered

    def leave(self, x: Tensor) -> Tensor:
        left: Tensor = (_Scatter if self.sequence else _Reduce).apply(x, self.group)
        return left


def _gathered(x: Tensor, group: Any) -> Tensor:
    """[b, s/n, h] of every rank to [b, s, h]."""
    ranks = dist.get_world_size(group)
    parts = x.new_empty(ranks * x.shape[0], *x.shape[1:])
    dist.all_gather_into_tensor(parts, x.contiguous(), group)
    return parts.unflatten(0, (ranks, -1)).movedim(0, 1).flatten(1, 2)


def _scattered(x: Tensor, group: Any) -> Tensor:
    """The sum over ranks of [b, s, h], this rank's [b, s/n, h] of it."""
    ranks = dist.get_world_size(group)
    parts = x.unflatten(1, (ranks, -1)).movedim(1, 0).flatten(0, 1)
    mine = parts.new_empty(x.shape[0], *parts.shape[1:])
    dist.reduce_scatter_tensor(mine, parts, group=group)
    return mine


def _summed(x: Tensor, group: Any) -> Tensor:
    total = x.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total, group=group)
    return total


class _Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _summed(gradients[0], ctx.group), None


class _Reduce(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, x: Tensor, group: Any) -> Tensor:
        return _summed(x, group)

    @staticmethod
    def backward(_: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0], None


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return _gathered(x, group)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _scattered(gradients[0], ctx.group), None


class _Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return _scattered(x, group)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _gathered(gradients[0], ctx.group), None
