"""Where a tensor-parallel region begins and ends: by collectives of a group, or played by one rank alone."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class Regions(Protocol):
    """What happens to the tokens [b, s, h] at the borders of a tensor-parallel region."""

    def enter(self, x: Tensor) -> Tensor:
        """From a rank's share of the tokens to all of them."""
        ...

    def leave(self, x: Tensor) -> Tensor:
        """From partial sums over all tokens to a rank's share of their sum."""
        ...


class Alone:
    """One rank without its group: a gathered sequence repeats the rank's shard, a scattered one keeps its first part.

    Shapes are those of the group's rank; its collectives are priced elsewhere.
    """

    def __init__(self, shards: int = 1) -> None:
        self._shards = shards

    def enter(self, x: Tensor) -> Tensor:
        return x if self._shards == 1 else x.repeat(1, self._shards, 1)

    def leave(self, x: Tensor) -> Tensor:
        return x if self._shards == 1 else x[:, : x.shape[1] // self._shards].contiguous()
