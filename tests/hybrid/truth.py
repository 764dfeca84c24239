"""Real training steps on two ranks: DDP, FSDP2, tensor parallelism with and without sequence parallelism, pipelines."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.pipelining.schedules import ScheduleZBVZeroBubble
from torch.nn.parallel import DistributedDataParallel

from windtunnel.job.job import Job
from windtunnel.job.plan import Chunk
from windtunnel.measure.torch.blocks.ends import cross_entropy
from windtunnel.measure.torch.blocks.regions import Regions
from windtunnel.measure.torch.clock import Clock
from windtunnel.measure.torch.groups import Group
from windtunnel.measure.torch.model import ChunkModule
from windtunnel.measure.torch.optimizer import optimizer
from windtunnel.measure.torch.pilot import Pilot
from windtunnel.schedule.job_order import job_order

Step = Callable[[], Tensor | None]


def trainer(job: Job) -> Step:
    """A function that runs one whole training step of ``job`` on this rank, optimizer included."""
    if job.plan.parallel.world == 1:
        return Pilot(job, Clock()).step
    if job.plan.parallel.pp > 1:
        return _pipeline(job)
    if job.plan.parallel.tp > 1:
        return _tensor_parallel(job)
    return _data_parallel(job)


def _batches(job: Job) -> list[tuple[Tensor, Tensor]]:
    batch = job.plan.batch
    shape = (batch.micro_batch_size, batch.sequence_length)
    draw = torch.Generator().manual_seed(dist.get_rank())
    vocab = job.model.vocab_size
    return [
        (torch.randint(0, vocab, shape, generator=draw), torch.randint(0, vocab, shape, generator=draw))
        for _ in range(job.plan.num_microbatches)
    ]


def _whole(job: Job) -> Chunk:
    return job.plan.pipeline.layout[0]


def _data_parallel(job: Job) -> Step:
    module: nn.Module = ChunkModule(job, _whole(job))
    fsdp = job.plan.sharding.shards_parameters
    if fsdp:
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for unit in (module.embedding, *module.layers, module.head):  # type: ignore[misc]  # as torchtitan groups them
            fully_shard(unit, mesh=mesh, reshard_after_forward=True)  # type: ignore[arg-type]
        fully_shard(module, mesh=mesh)
    else:
        module = DistributedDataParallel(module, gradient_as_bucket_view=True)
    steps = optimizer(job.plan.optimizer, module.parameters())
    batches = _batches(job)

    def step() -> Tensor:
        for index, (tokens, labels) in enumerate(batches):
            last = index == len(batches) - 1
            with nullcontext() if fsdp or last else module.no_sync():  # type: ignore[operator]
                loss = module(tokens, labels)
                loss.backward()
        steps.step()
        steps.zero_grad()
        return loss.detach()

    return step


def _tensor_parallel(job: Job) -> Step:
    module = ChunkModule(job, _whole(job), Regions(Group(), sequence=job.plan.parallel.sequence_parallel))
    for end in (module.embedding, module.head):
        end.first = dist.get_rank() * module.embedding.table.num_embeddings  # type: ignore
    steps = optimizer(job.plan.optimizer, module.parameters())
    batches = _batches(job)
    copies = [weight for name, weight in module.named_parameters() if weight.dim() == 3]

    def step() -> Tensor:
        for tokens, labels in batches:
            loss = module(tokens, labels)
            loss.backward()
        for weight in copies:  # experts are replicas on the ranks of a tensor-parallel group
            dist.all_reduce(weight.grad)
        steps.step()
        steps.zero_grad()
        return loss.detach()

    return step


class _Stage(nn.Module):
    """A chunk whose head answers logits: the schedule computes the loss."""

    def __init__(self, job: Job, chunk: Chunk) -> None:
        super().__init__()
        self.chunk = ChunkModule(job, chunk)

    def forward(self, x: Tensor) -> Tensor:
        return self.chunk(x)  # type: ignore[no-any-return]


def _pipeline(job: Job) -> Step:
    rank, layout = dist.get_rank(), job.plan.pipeline.layout
    held = job_order(job).placement[rank]
    modules = [_Stage(job, layout[index]) for index in held]
    device = torch.device("cpu")
    stages = [PipelineStage(module, index, len(layout), device) for module, index in zip(modules, held, strict=True)]
    count = job.plan.num_microbatches
    if job.plan.pipeline.schedule == "zbv":
        schedule: Any = ScheduleZBVZeroBubble(stages, count, loss_fn=cross_entropy)
    else:
        schedule = Schedule1F1B(stages[0], count, loss_fn=cross_entropy)
    steps = optimizer(job.plan.optimizer, [weight for module in modules for weight in module.parameters()])
    batches = _batches(job)
    tokens = torch.cat([tokens for tokens, _ in batches])
    labels = torch.cat([labels for _, labels in batches])

    def step() -> None:
        arguments = (tokens,) if 0 in held else ()
        target = labels if len(layout) - 1 in held else None
        schedule.step(*arguments, target=target)
        steps.step()
        steps.zero_grad()

    return step
