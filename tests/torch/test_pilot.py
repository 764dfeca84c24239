"""What a pilot keeps for backward is what its chunk is said to keep, and its gradients are those of its parts."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch.nn")  # a folder of tests named torch would pass for the package itself
torch = pytest.importorskip("torch")

from windtunnel.catalog.jobs import job_from_mapping  # noqa: E402
from windtunnel.catalog.pilots import eager_software  # noqa: E402
from windtunnel.job.job import Job  # noqa: E402
from windtunnel.measure.torch.blocks.kept import kept_bytes  # noqa: E402
from windtunnel.measure.torch.clock import Clock  # noqa: E402
from windtunnel.measure.torch.pilot import Pilot, weighed_pilot  # noqa: E402
from windtunnel.memory.kept import kept_chunk  # noqa: E402
from windtunnel.projection.memory import project_memory  # noqa: E402
from windtunnel.projection.pilots import pilot, pilot_key  # noqa: E402

DENSE = {
    "name": "pilot", "hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 320,
    "vocab_size": 512,
}  # fmt: skip
EXPERTS = DENSE | {"moe": {"num_experts": 4, "num_experts_per_token": 2, "moe_intermediate_size": 192}}


def job_of(model: dict[str, Any], layers: int, policy: str, microbatches: int = 1) -> Job:
    return job_from_mapping(
        {
            "model": model | {"num_layers": layers},
            "cluster": {"accelerator": "h100-sxm-80gb", "num_accelerators": 1},
            "software": {"framework": "pytorch-fsdp", "date": "2026-06"},
            "plan": {
                "batch": {"micro_batch_size": 2, "global_batch_size": 2 * microbatches, "sequence_length": 64},
                "sharding": {"strategy": "ddp"},
                "recompute": {"policy": policy},
            },
        }
    )


@pytest.mark.parametrize("policy", ["none", "full"])
@pytest.mark.parametrize("layers", [2, 4])
@pytest.mark.parametrize("model", [DENSE, EXPERTS], ids=["dense", "experts"])
def test_a_pilot_keeps_what_its_chunk_keeps(model: dict[str, Any], layers: int, policy: str) -> None:
    job = job_of(model, layers, policy)
    pilot = Pilot(job, Clock())
    ignored = [*pilot.module.parameters(), *pilot.module.buffers(), pilot.tokens, pilot.labels]
    counted = kept_bytes(lambda: pilot.module(pilot.tokens, pilot.labels), ignored)
    predicted = kept_chunk(job, job.plan.pipeline.layout[0])
    assert counted == predicted.activations + predicted.dispatcher + predicted.logits


def test_a_pilot_trains() -> None:
    pilot = Pilot(job_of(DENSE, 2, "none", microbatches=2), Clock())
    losses = [pilot.step().item() for _ in range(60)]
    assert losses[-1] < losses[0]
    assert pilot.seconds() > 0


@pytest.mark.parametrize("model", [DENSE, EXPERTS], ids=["dense", "experts"])
def test_pilots_foretell_the_peak_of_a_deeper_stack(model: dict[str, Any]) -> None:
    """Peaks of two and four layers exceed what is counted by the same bytes, and so does that of six."""
    job = job_of(model, 6, "none")
    excess, allocated = [], []
    for count in (2, 4, 6):
        whole = pilot(job, count, eager_software())
        found = weighed_pilot("cpu", whole).run()
        allocated.append(found[pilot_key(whole, "bytes/allocated")])
        excess.append(allocated[-1] - project_memory(whole).peak.allocated)
    assert excess[1] - excess[0] == pytest.approx(0, abs=0.02 * allocated[1])
    assert allocated[2] == pytest.approx(project_memory(whole).peak.allocated + excess[1], rel=0.01)
