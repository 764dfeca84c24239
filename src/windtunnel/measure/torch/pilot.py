"""A pilot: a real training step of a few of a job's layers on one device, for what no op shows."""

from __future__ import annotations

import torch
from torch import Tensor

from windtunnel.cost.profile import Key
from windtunnel.dtypes import activation
from windtunnel.job.job import Job
from windtunnel.measure.torch.clock import Clock
from windtunnel.measure.torch.device import clock
from windtunnel.measure.torch.model import ChunkModule
from windtunnel.measure.torch.optimizer import optimizer
from windtunnel.measure.torch.peak import Peak, peak
from windtunnel.measure.torch.units import DTYPES
from windtunnel.projection.pilots import pilot_key


class Pilot:
    """Trains the one chunk of ``job`` on random tokens: every micro-batch forward and backward, then the optimizer.

    ``job`` runs on one accelerator; its parameters are kept in the dtype the plan computes in.
    """

    def __init__(self, job: Job, its: Clock) -> None:
        plan = job.plan
        dtype = DTYPES[activation(plan.precision.compute)]
        self._clock, self._count = its, plan.num_microbatches
        (chunk,) = plan.pipeline.layout
        self.module = ChunkModule(job, chunk).to(device=its.device, dtype=dtype)
        self._optimizer = optimizer(plan.optimizer, self.module.parameters())
        shape = (plan.batch.micro_batch_size, plan.batch.sequence_length)
        draw = torch.Generator(its.device).manual_seed(0)
        self.tokens, self.labels = (
            torch.randint(0, job.model.vocab_size, shape, generator=draw, device=its.device) for _ in range(2)
        )

    def step(self) -> Tensor:
        """The loss of the last micro-batch."""
        for _ in range(self._count):
            loss: Tensor = self.module(self.tokens, self.labels)
            loss.backward()
        self._optimizer.step()
        self._optimizer.zero_grad()
        return loss.detach()

    def seconds(self) -> float:
        """Seconds of one step."""
        return self._clock.time(self.step)[1]


class _Timed:
    def __init__(self, job: Job, device: str, co_runners: int) -> None:
        self._key, self._pilot = pilot_key(job, "pilot", co_runners), Pilot(job, clock(device))

    def run(self) -> dict[Key, float]:
        return {self._key: self._pilot.seconds()}


def pilot(device: str, job: Job, co_runners: int = 0) -> _Timed:
    """A pilot's step as a kernel of the harness, named by how many run beside it."""
    return _Timed(job, device, co_runners)


class _Weighed:
    def __init__(self, job: Job, device: str) -> None:
        self._job, self._device = job, device
        self._found: Peak | None = None

    def run(self) -> dict[Key, float]:
        """Bytes at the peak of building a pilot and of two steps: the first makes the optimizer's state. Counted once:
        every run allocates alike."""
        found = self._found = self._found or peak(self._steps, self._device)
        named = (pilot_key(self._job, what) for what in ("bytes/allocated", "bytes/reserved"))
        return dict(zip(named, (float(found.allocated), float(found.reserved)), strict=True))

    def _steps(self) -> None:
        whole = Pilot(self._job, clock(self._device))
        whole.step()
        whole.step()


def weighed_pilot(device: str, job: Job) -> _Weighed:
    """A pilot's peak memory as a kernel of the harness."""
    return _Weighed(job, device)
