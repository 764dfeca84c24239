"""A pilot: a real training step of a few of a job's layers on one device, for what no op shows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from windtunnel.cost.profile import Key, key
from windtunnel.dtypes import activation
from windtunnel.job.job import Job
from windtunnel.measure.torch.clock import Clock
from windtunnel.measure.torch.device import clock
from windtunnel.measure.torch.model import ChunkModule
from windtunnel.measure.torch.optimizer import optimizer
from windtunnel.measure.torch.units import DTYPES


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """Bytes the allocator gave out and held at the worst moment of a step."""

    allocated: int
    reserved: int


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

    def peak(self) -> Peak:
        """The peak of a step after the first, which makes the optimizer's state. Accelerators only."""
        torch.cuda.reset_peak_memory_stats()
        self.step()
        torch.cuda.synchronize()
        return Peak(allocated=torch.cuda.max_memory_allocated(), reserved=torch.cuda.max_memory_reserved())


def pilot_key(job: Job) -> Key:
    """The key of a pilot's step by what it trains."""
    batch, model = job.plan.batch, job.model
    shape = {"layers": model.num_layers, "hidden": model.hidden_size, "vocab": model.vocab_size}
    shape |= {"batch": batch.micro_batch_size, "sequence": batch.sequence_length, "count": job.plan.num_microbatches}
    return key("pilot", "step", activation(job.plan.precision.compute), shape)


class _Timed:
    def __init__(self, job: Job, device: str) -> None:
        self._key, self._pilot = pilot_key(job), Pilot(job, clock(device))

    def run(self) -> dict[Key, float]:
        return {self._key: self._pilot.seconds()}


def pilot(device: str, job: Job) -> _Timed:
    """A pilot as a kernel of the harness."""
    return _Timed(job, device)
