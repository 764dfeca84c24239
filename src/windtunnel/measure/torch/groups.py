"""The traffic of a tensor-parallel group: real collectives among its ranks."""

from __future__ import annotations

import torch.distributed as dist
from torch import Tensor

from windtunnel.measure.torch.blocks.regions import by_rank, in_sequence


class Group:
    """Collectives of ``group``, all ranks by default."""

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        self._group = group

    def gather(self, x: Tensor) -> Tensor:
        ranks = dist.get_world_size(self._group)
        parts = x.new_empty(ranks * x.shape[0], *x.shape[1:])
        dist.all_gather_into_tensor(parts, x.contiguous(), self._group)
        return in_sequence(parts.unflatten(0, (ranks, -1)))

    def scatter(self, x: Tensor) -> Tensor:
        parts = by_rank(x, dist.get_world_size(self._group))
        mine = parts.new_empty(parts.shape[0] // dist.get_world_size(self._group), *parts.shape[1:])
        dist.reduce_scatter_tensor(mine, parts, group=self._group)
        return mine

    def reduce(self, x: Tensor) -> Tensor:
        total = x.contiguous()
        dist.all_reduce(total, group=self._group)
        return total

    def highest(self, x: Tensor) -> Tensor:
        dist.all_reduce(x, dist.ReduceOp.MAX, self._group)
        return x
