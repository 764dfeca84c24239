"""A unit under FSDP2 in a group of one rank: what the framework does round its collectives, without a network."""

from __future__ import annotations

from functools import lru_cache

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard


def sharded(block: nn.Module, device: str) -> nn.Module:
    """``block`` with hooks, copies into and out of flat buffers, and parameters freed after use."""
    fully_shard(block, mesh=_mesh(device.partition(":")[0]), reshard_after_forward=True)
    return block


@lru_cache(maxsize=4)
def _mesh(kind: str) -> DeviceMesh:
    """A mesh of this rank alone."""
    join(kind)
    group = dist.new_group([dist.get_rank()], backend=BACKENDS[kind], use_local_synchronization=True)
    return DeviceMesh.from_group(group, kind, mesh=torch.tensor([dist.get_rank()]))


BACKENDS = {"cpu": "gloo", "cuda": "nccl"}
"""Of torch.distributed, by kind of device; RCCL goes by the name of NCCL."""


def join(device: str) -> None:
    """A process that belongs to no group of ranks yet makes one of its own."""
    if not dist.is_initialized():
        backend = BACKENDS[device.partition(":")[0]]
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
