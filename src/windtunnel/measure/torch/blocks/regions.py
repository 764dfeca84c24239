"""Where a tensor-parallel region begins and ends, and the traffic over its border: a group's, or played by one rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor


class Traffic(Protocol):
    """What the ranks of a tensor-parallel group do to the tokens [b, s, h] of one of them."""

    def gather(self, x: Tensor) -> Tensor:
        """[b, s/n, h] of every rank to [b, s, h]."""
        ...

    def scatter(self, x: Tensor) -> Tensor:
        """The sum over ranks of [b, s, h], this rank's [b, s/n, h] of it."""
        ...

    def reduce(self, x: Tensor) -> Tensor:
        """The sum over ranks of equal shapes, in place where it is contiguous."""
        ...

    def highest(self, x: Tensor) -> Tensor:
        """The maximum over ranks of equal shapes, in place; without a gradient."""
        ...


class Regions:
    """The borders of a region; with ``sequence`` parallelism tokens are gathered on entering, scattered on leaving.

    Without traffic a rank has all tokens on both sides.
    """

    def __init__(self, traffic: Traffic | None = None, *, sequence: bool = False) -> None:
        self._traffic, self._sequence = traffic, sequence

    def enter(self, x: Tensor) -> Tensor:
        """From a rank's share of the tokens to all of them."""
        if self._traffic is None:
            return x
        if self._sequence:
            return _through(x, self._traffic.gather, self._traffic.scatter)
        return _through(x, _seen, self._traffic.reduce)

    def leave(self, x: Tensor) -> Tensor:
        """From partial sums over all tokens to a rank's share of their sum."""
        if self._traffic is None or not self._sequence:
            return self.sum(x)
        return _through(x, self._traffic.scatter, self._traffic.gather)

    def sum(self, x: Tensor) -> Tensor:
        """The sum over ranks of what each of them has a part of, in place."""
        return x if self._traffic is None else _through(x, self._traffic.reduce, _seen)

    def highest(self, x: Tensor) -> Tensor:
        """The maximum over ranks, in place; without a gradient."""
        return x if self._traffic is None else self._traffic.highest(x)


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


Way = Callable[[Tensor], Tensor]


def _through(x: Tensor, there: Way, back: Way) -> Tensor:
    """``there`` on a tensor, and ``back`` on its gradient."""
    passed: Tensor = _Border.apply(x, there, back)
    return passed


def _seen(x: Tensor) -> Tensor:
    return x.view_as(x)


class _Border(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, there: Way, back: Way) -> Tensor:
        ctx.back = back
        passed = there(x)
        if passed is x:
            ctx.mark_dirty(x)
        return passed

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return ctx.back(gradients[0]), None, None
