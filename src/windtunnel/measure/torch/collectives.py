"""Collectives of the world at hand, and compute beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

import torch
import torch.distributed as dist
from torch import Tensor

from windtunnel.measure.torch.clock import Clock

FP32 = 4


class CollectiveKernel:
    """One collective of ``size`` bytes (full, gathered size) of random fp32 over the whole world.

    Buffers are there before it: what a framework copies into and out of them is measured with the unit that it is for.
    """

    def __init__(self, kind: str, size: float, clock: Clock) -> None:
        self._clock = clock
        ranks, self._rank = dist.get_world_size(), dist.get_rank()
        each = max(1, round(size / FP32 / ranks))
        self._full = torch.randn(each * ranks, device=clock.device)
        self._part = torch.randn(each, device=clock.device)
        if kind == "send_recv":
            self._full = torch.randn(max(1, round(size / FP32)), device=clock.device)
        self._other = torch.empty_like(self._full)
        self._call: Callable[[], object] = getattr(self, f"_{kind}")

    def run(self, times: int = 1) -> float:
        """Mean seconds of calls that all ranks enter together, one after the other."""
        dist.barrier()
        return self._clock.time(lambda: [self._call() for _ in range(times)])[1] / times

    def _all_reduce(self) -> None:
        dist.all_reduce(self._full)

    def _all_gather(self) -> None:
        dist.all_gather_into_tensor(self._full, self._part)

    def _reduce_scatter(self) -> None:
        dist.reduce_scatter_tensor(self._part, self._full)

    def _all_to_all(self) -> None:
        dist.all_to_all_single(self._other, self._full)

    def _send_recv(self) -> None:
        """One way, from even ranks to odd ones."""
        peer = self._rank ^ 1
        if self._rank % 2 == 0:
            dist.send(self._full, peer)
        else:
            dist.recv(self._full, peer)


class BesideTraffic:
    """What an all-reduce costs a matrix product that runs beside it."""

    def __init__(self, size: float, clock: Clock, width: int = 512) -> None:
        self._clock = clock
        self._buffer = torch.randn(max(1, round(size / FP32)), device=clock.device)
        self._x = torch.randn(width, width, device=clock.device)
        self._products = 0

    def run(self) -> tuple[float, float, float]:
        """Seconds of compute alone, traffic alone, and both at once."""
        traffic = self._timed(lambda: dist.all_reduce(self._buffer))
        if self._products == 0:
            one = self._clock.time(lambda: self._multiply(4))[1] / 4
            self._products = max(4, round(2 * traffic / one))
        compute = self._timed(lambda: self._multiply(self._products))
        return compute, traffic, self._timed(self._together)

    def _timed(self, work: Callable[[], object]) -> float:
        dist.barrier()
        return self._clock.time(work)[1]

    def _together(self) -> None:
        handle = dist.all_reduce(self._buffer, async_op=True)
        self._multiply(self._products)
        handle.wait()

    def _multiply(self, times: int) -> Tensor:
        for _ in range(times):
            result = self._x @ self._x
        return result


def slowdown(samples: Sequence[tuple[float, float, float]]) -> float:
    """(both − compute) / traffic of the medians: 0 where traffic is free, 1 where nothing overlaps."""
    compute, traffic, both = (median(series) for series in zip(*samples, strict=True))
    return max((both - compute) / traffic, LEAST)


LEAST = 1e-6
"""A profile holds no zeros."""
