"""Where a tensor-parallel region begins and ends, and the traffic over its border: a group's, or played by one rank."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

Border = type[torch.autograd.Function]


class Traffic(Protocol):
    """What the ranks of a tensor-parallel group do to the tokens [b, s, h] of one of them."""

    def gather(self, x: Tensor) -> Tensor:
        """[b, s/n, h] of every rank to [b, s, h]."""
        ...

    def scatter(self, x: Tensor) -> Tensor:
        """The sum over ranks of [b, s, h], this rank's [b, s/n, h] of it."""
        ...

    def reduce(self, x: Tensor) -> Tensor:
        """The sum over ranks of equal shapes, in place."""
        ...

    def highest(self, x: Tensor) -> Tensor:
        """The maximum over ranks of equal shapes, in place; without a gradient."""
        ...


class Regions:
    """The borders of a region; with ``sequence`` parallelism tokens are gathered on entering, scattered on leaving.

    Without traffic a rank has all tokens on both sides.
    """

    def __init__(self, traffic: Traffic | None = None, *, sequence: bool = False) -> None:
        self._traffic = traffic
        self._enter: Border = _Gather if sequence else _Copy
        self._leave: Border = _Scatter if sequence else _Reduce

    def enter(self, x: Tensor) -> Tensor:
        """From a rank's share of the tokens to all of them."""
        return self._through(self._enter, x)

    def leave(self, x: Tensor) -> Tensor:
        """From partial sums over all tokens to a rank's share of their sum."""
        return self._through(self._leave, x)

    def sum(self, x: Tensor) -> Tensor:
        """The sum over ranks of what each of them has a part of, in place."""
        return self._through(_Reduce, x)

    def highest(self, x: Tensor) -> Tensor:
        """The maximum over ranks, in place; without a gradient."""
        return x if self._traffic is None else self._traffic.highest(x)

    def _through(self, border: Border, x: Tensor) -> Tensor:
        passed: Tensor = x if self._traffic is None else border.apply(x, self._traffic)
        return passed


class Alone:
    """One of ``ranks`` without the others: a gathered sequence repeats its shard, a scattered one keeps its first part.

    It copies what a rank of the group copies round its collectives; these are priced elsewhere.
    """

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks

    def gather(self, x: Tensor) -> Tensor:
        return in_sequence(x.expand(self._ranks, *x.shape))

    def scatter(self, x: Tensor) -> Tensor:
        return by_rank(x, self._ranks)[: x.shape[0]]

    def reduce(self, x: Tensor) -> Tensor:
        return x

    def highest(self, x: Tensor) -> Tensor:
        return x


def played(shards: int) -> Regions:
    """The borders of a region whose sequence ``shards`` ranks share, for one rank that is alone."""
    return Regions(Alone(shards), sequence=True) if shards > 1 else Regions()


def in_sequence(parts: Tensor) -> Tensor:
    """[n, b, s/n, h] by rank to [b, s, h]."""
    return parts.movedim(0, 1).flatten(1, 2)


def by_rank(x: Tensor, ranks: int) -> Tensor:
    """[b, s, h] to [n b, s/n, h], the tokens of one rank after those of another."""
    return x.unflatten(1, (ranks, -1)).movedim(1, 0).flatten(0, 1)


class _Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, traffic: Traffic) -> Tensor:
        ctx.traffic = traffic
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.traffic.reduce(gradients[0].contiguous()), None


class _Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, traffic: Traffic) -> Tensor:
        ctx.mark_dirty(x)
        return traffic.reduce(x)

    @staticmethod
    def backward(_: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0], None


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, traffic: Traffic) -> Tensor:
        ctx.traffic = traffic
        return traffic.gather(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.traffic.scatter(gradients[0]), None


class _Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, traffic: Traffic) -> Tensor:
        ctx.traffic = traffic
        return traffic.scatter(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.traffic.gather(gradients[0]), None
