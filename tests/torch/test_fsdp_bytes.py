"""Sharded parameters and what FSDP gathers of them, as torch's own tracker counts them on a fake process group."""

from __future__ import annotations

from math import ceil
from typing import Any

import pytest

pytest.importorskip("torch.nn")  # a folder of tests named torch would pass for the package itself
torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")
fake = pytest.importorskip("torch.testing._internal.distributed.fake_pg")

from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard  # noqa: E402

from windtunnel.catalog.jobs import job_from_mapping  # noqa: E402
from windtunnel.job.job import Job  # noqa: E402
from windtunnel.measure.torch.blocks.build import build  # noqa: E402
from windtunnel.memory.states import byte_rates, shard_sizes, states  # noqa: E402
from windtunnel.ops.chunk import Unit, unit_parameters, unit_weights, units  # noqa: E402
from windtunnel.ops.sizes import sizes  # noqa: E402

LAYERS = 4


def job_on(ranks: int) -> Job:
    """Four layers of the width of Llama-3 8B, one sequence of 8,192 tokens a rank."""
    return job_from_mapping(
        {
            "model": {
                "name": "four-layers",
                "num_layers": LAYERS,
                "hidden_size": 4096,
                "num_attention_heads": 32,
                "num_key_value_heads": 8,
                "intermediate_size": 14336,
                "vocab_size": 128256,
            },
            "cluster": {"accelerator": "h100-sxm-80gb", "num_accelerators": ranks},
            "software": {"framework": "pytorch-fsdp", "date": "2026-06"},
            "plan": {
                "batch": {"micro_batch_size": 1, "global_batch_size": ranks, "sequence_length": 8192},
                "sharding": {"strategy": "fsdp"},
                "precision": {"grad_reduce": "fp32"},
            },
        }
    )


def all_units(job: Job) -> list[Unit]:
    return [unit for unit, n in units(job, job.plan.pipeline.layout[0]) for _ in range(n)]


def first_shard(job: Job, unit: Unit, ranks: int) -> int:
    """Parameters of a unit on rank 0: FSDP2 shards rows, and the first ranks hold the larger shards."""
    return sum(ceil(weight.rows / ranks) * weight.cols for weight in unit_weights(job, unit))


class Model(torch.nn.Module):
    def __init__(self, job: Job) -> None:
        super().__init__()
        held = [(sizes(job, unit), n) for chunk in job.plan.pipeline.layout for unit, n in units(job, chunk)]
        by_kind = {sized.kind: sized for sized, _ in held}
        self.embedding = build(by_kind["embedding"])
        self.layers = torch.nn.ModuleList(build(by_kind["layer"]) for _ in range(LAYERS))
        self.head = build(by_kind["head"])

    def forward(self, tokens: Any, labels: Any) -> Any:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x, labels)


def peak(job: Job, ranks: int) -> dict[str, int]:
    """Bytes by kind at the peak of forward and backward on rank 0."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    dist.init_process_group("fake", rank=0, world_size=ranks, store=fake.FakeStore())
    try:
        mesh = init_device_mesh("cpu", (ranks,))
        with FakeTensorMode():
            model = Model(job)
            policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
            for layer in model.layers:
                fully_shard(layer, mesh=mesh, mp_policy=policy)
            fully_shard(model, mesh=mesh, mp_policy=policy)
            optimizer = torch.optim.AdamW(model.parameters())
            tokens = torch.randint(0, 128256, (1, 8192))
            tracker = FSDPMemTracker(model, optimizer)
            tracker.track_inputs((tokens,))
            with tracker:
                for step in range(2):
                    model(tokens, tokens).backward()
                    if step == 0:
                        tracker.reset_mod_stats()
            found = tracker.get_tracker_snapshot("peak")
    finally:
        dist.destroy_process_group()
    (of_device,) = found.values()
    return {str(getattr(kind, "value", kind)): size for kind, size in of_device.items()}


@pytest.mark.parametrize("ranks", [8, 64, 1024])
def test_sharded_and_gathered_bytes(ranks: int) -> None:
    job = job_on(ranks)
    found = peak(job, ranks)
    everything = all_units(job)
    shard = 4 * sum(first_shard(job, unit, ranks) for unit in everything)
    assert found["Sharded Param"] == found["Sharded Grad"] == shard
    if ranks <= 64:  # beyond, 128,256 rows of the vocabulary do not divide and rank 0 holds more than the mean
        total = sum(unit_parameters(job, unit).total for unit in everything)
        held = states(total, 0.0, *shard_sizes(job), byte_rates(job))
        assert shard == held.weights == held.gradients
    # The peak is the loss: the root group of embedding and head is gathered in bf16, and one layer prefetched.
    gathered = {unit.kind: 2 * ranks * first_shard(job, unit, ranks) for unit in everything}
    assert found["Unsharded Param"] == gathered["embedding"] + gathered["head"]
    assert found["All Gather"] == gathered["layer"]
