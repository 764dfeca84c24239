"""Collectives of the world at hand, and compute beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

import torch
import torch.distributed as dist
from torch import Tensor

from windtunnel.measure.torch.clock import Clock

FP32 = 4
WIDTH = 256
"""Elements a row of the product before a collective."""
WORK = 0.002
"""Seconds of products before a collective on a CPU: about those between two collectives of a layer."""


class CollectiveKernel:
    """One collective of ``size`` bytes (full, gathered size) of random fp32 over the whole world.

    It is timed as layers meet it: in a chain in which every call follows products that write what it sends, less the
    same products without calls. So it holds what a call costs the compute round it: waits for the slower rank, caches,
    and on a CPU the threads of the backend, which share cores with compute. What a framework copies into and out of its
    buffers is measured with the unit that it is for.
    """

    def __init__(self, kind: str, size: float, clock: Clock) -> None:
        self._clock, self._products = clock, 0
        ranks, self._rank = dist.get_world_size(), dist.get_rank()
        each = max(1, round(size / FP32 / ranks))
        self._full = torch.randn(each * ranks, device=clock.device)
        self._part = torch.randn(each, device=clock.device)
        if kind == "send_recv":
            self._full = torch.randn(max(1, round(size / FP32)), device=clock.device)
        self._other = torch.empty_like(self._full)
        self._call: Callable[[], object] = getattr(self, f"_{kind}")
        sent = self._part if kind == "all_gather" else self._full
        width = min(WIDTH, sent.numel())
        self._sent = sent[: sent.numel() // width * width].view(-1, width)
        self._x = torch.randn(self._sent.shape[0], WIDTH, device=clock.device)
        self._weight = torch.randn(WIDTH, width, device=clock.device)

    def run(self, times: int = 1) -> float:
        """Mean seconds that each of ``times`` calls adds to a chain."""
        if self._products == 0:
            self._work()
            self._products = 1 if self._clock.device != "cpu" else max(1, round(WORK / self._chain(1, self._nothing)))
        return max(self._chain(times, self._call) - self._chain(times, self._nothing), LEAST) / times

    def _chain(self, times: int, call: Callable[[], object]) -> float:
        """Seconds of the rank that takes longest, all starting together."""

        def chain() -> None:
            for _ in range(times):
                self._work()
                call()

        dist.barrier()
        longest = torch.tensor(self._clock.time(chain)[1], dtype=torch.float64, device=self._clock.device)
        dist.all_reduce(longest, op=dist.ReduceOp.MAX)
        return longest.item()

    def _work(self) -> None:
        for _ in range(max(self._products, 1)):
            torch.mm(self._x, self._weight, out=self._sent)

    def _nothing(self) -> None:
        """In place of the call."""

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
