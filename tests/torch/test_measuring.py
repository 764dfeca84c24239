"""Measuring for real on this CPU: the command, the network, the queue; few and small."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch.nn")  # a folder of tests named torch would pass for the package itself
torch = pytest.importorskip("torch")

from windtunnel.catalog.jobs import job_from_mapping  # noqa: E402
from windtunnel.catalog.profiles import read_profile, write_profile  # noqa: E402
from windtunnel.cli.app import run  # noqa: E402
from windtunnel.cost.anchor import anchored  # noqa: E402
from windtunnel.cost.profile_keys import unit_key  # noqa: E402
from windtunnel.measure.harness import Bench  # noqa: E402
from windtunnel.measure.network import measure_network  # noqa: E402
from windtunnel.measure.session import environment  # noqa: E402
from windtunnel.measure.suite import suite  # noqa: E402
from windtunnel.measure.torch.blocks.build import build  # noqa: E402
from windtunnel.measure.torch.blocks.ends import cross_entropy, vocab_parallel_cross_entropy  # noqa: E402
from windtunnel.measure.torch.blocks.regions import Regions, played  # noqa: E402
from windtunnel.measure.torch.groups import Group  # noqa: E402
from windtunnel.measure.worker import Effort  # noqa: E402
from windtunnel.ops.chunk import units  # noqa: E402
from windtunnel.ops.sizes import sizes  # noqa: E402

JOB: dict[str, Any] = {
    "model": {
        "name": "small",
        "num_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 128,
        "vocab_size": 256,
    },
    "cluster": {"accelerator": "h100-sxm-80gb", "num_accelerators": 2},
    "software": {"framework": "pytorch-fsdp", "date": "2026-06"},
    "plan": {
        "batch": {"micro_batch_size": 1, "global_batch_size": 2, "sequence_length": 64},
        "sharding": {"strategy": "ddp"},
        "precision": {"compute": "fp32"},
    },
}


def test_measure_then_project(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job, out = tmp_path / "job.json", str(tmp_path / "p.yaml")
    job.write_text(json.dumps(JOB))
    arguments = ("measure", str(job), "--threads", "1", "--out", out, "--budget", "60 s", "--json")
    assert run(arguments) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["measured"] >= 4  # the whole layer at least, however busy the machine
    assert not first["warnings"]
    assert run(("project", str(job), "--profile", out, "--json")) == 0
    shares = json.loads(capsys.readouterr().out)["provenance"]
    assert shares["measured"] > 0.4
    text = Path(out).read_text()
    assert str(tmp_path) not in text
    assert run(arguments) == 0  # taken up where it was left
    assert len({entry.key for entry in read_profile(out).entries}) == len(read_profile(out).entries)


def test_collectives_over_two_ranks(tmp_path: Path) -> None:
    job, path = job_from_mapping(JOB), str(tmp_path / "p.yaml")
    write_profile(path, environment(Bench()))
    results = measure_network(job, path, 2, "cpu")
    assert not [result.warning for result in results if result.warning]
    profile = read_profile(path)
    assert len(profile.entries) == len(results) > 15
    fits = {(fit.op, fit.ranks) for fit in anchored(job, profile).cluster.scale_up.fits}
    assert {("all_gather", 2), ("all_reduce", 2), ("reduce_scatter", 2), ("all_to_all", 2)} <= fits


@pytest.mark.parametrize("cluster", ["local", "debug"])
def test_a_session_through_the_queue(tmp_path: Path, cluster: str) -> None:
    pytest.importorskip("submitit")
    from windtunnel.measure.slurm import submitted

    bench = Bench(threads=1, effort=Effort(warm_up=0.1, sampling=0.1))
    path = str(tmp_path / "p.yaml")
    results = submitted(suite("smoke")[:4], path, bench, cluster=cluster)
    assert len(results) == len(read_profile(path).entries) == 4


def test_collectives_through_the_queue(tmp_path: Path) -> None:
    pytest.importorskip("submitit")
    from windtunnel.measure.slurm import Network, submitted

    path = str(tmp_path / "p.yaml")
    network = Network(job_from_mapping(JOB), 2)
    results = submitted((), path, Bench(threads=1), network=network, cluster="local")
    assert len(results) > 15
    assert {entry.key.op.partition("/")[0] for entry in read_profile(path).entries} >= {"collective"}


def _borders(rank: int, folder: str, sequence: bool) -> None:
    dist = torch.distributed
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    regions = Regions(Group(), sequence=sequence)
    x = torch.arange(2 * 4 * 3, dtype=torch.float32).view(2, 4, 3)
    mine = (x[:, 2 * rank : 2 * rank + 2] if sequence else x).clone().requires_grad_()
    entered = regions.enter(mine)
    left = regions.leave(entered * (rank + 1))
    left.sum().backward()
    torch.save((entered.detach(), left.detach(), mine.grad), f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.parametrize("sequence", [False, True])
def test_borders_of_a_tensor_parallel_region(tmp_path: Path, sequence: bool) -> None:
    torch.multiprocessing.spawn(_borders, args=(str(tmp_path), sequence), nprocs=2)
    x = torch.arange(2 * 4 * 3, dtype=torch.float32).view(2, 4, 3)
    for rank in (0, 1):
        entered, left, gradient = torch.load(tmp_path / f"{rank}.pt")
        share = slice(2 * rank, 2 * rank + 2) if sequence else slice(None)
        torch.testing.assert_close(entered, x)
        torch.testing.assert_close(left, 3 * x[:, share])
        torch.testing.assert_close(gradient, torch.full_like(gradient, 3.0))


def test_a_played_region_has_the_shapes_of_its_group() -> None:
    mine = torch.randn(2, 4, 3, requires_grad=True)
    entered = played(2).enter(mine)
    left = played(2).leave(entered)
    left.sum().backward()
    assert entered.shape == (2, 8, 3)
    torch.testing.assert_close(left, mine)
    assert mine.grad is not None
    assert mine.grad.shape == mine.shape
    assert played(1).enter(mine) is mine


def _losses(rank: int, folder: str) -> None:
    dist = torch.distributed
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    logits, labels = torch.load(f"{folder}/whole.pt")
    mine = logits[..., 8 * rank : 8 * rank + 8].clone().requires_grad_()
    loss = vocab_parallel_cross_entropy(mine, labels - 8 * rank, Regions(Group()))
    loss.backward()
    torch.save((loss.detach(), mine.grad), f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def test_a_loss_over_a_divided_vocabulary_is_the_loss(tmp_path: Path) -> None:
    logits, labels = torch.randn(2, 5, 16, requires_grad=True), torch.randint(0, 16, (2, 5))
    torch.save((logits.detach(), labels), tmp_path / "whole.pt")
    torch.multiprocessing.spawn(_losses, args=(str(tmp_path),), nprocs=2)
    loss = cross_entropy(logits, labels)
    loss.backward()
    parts = [torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1)]
    for found, _ in parts:
        torch.testing.assert_close(found, loss.detach())
    torch.testing.assert_close(torch.cat([gradient for _, gradient in parts], -1), logits.grad)


@pytest.mark.parametrize(
    ("package", "adapter"),
    [
        ("transformers", "transformers_layers"),
        ("torchtitan.models.llama3", "torchtitan_layers"),
        ("megatron.core", "megatron_core_layers"),
    ],
)
@pytest.mark.parametrize("sharded", [False, True])
def test_layers_of_frameworks(package: str, adapter: str, sharded: bool) -> None:
    pytest.importorskip(package, exc_type=ImportError)
    from windtunnel.measure.torch.framework_layers import covers

    module = importlib.import_module(f"windtunnel.measure.torch.{adapter}")
    job = job_from_mapping(JOB)
    unit = next(unit for unit, _ in units(job, job.plan.pipeline.layout[0]) if unit.kind == "layer")
    sized = sizes(job, unit)
    assert covers(sized)
    kernel = module.layer("cpu", sized, 0, sharded)
    phases = ("forward", "backward") if sharded else ("forward", "backward", "grad_input", "grad_weight")
    seconds = kernel.run()
    assert set(seconds) == {unit_key(sized, phase, sharded=sharded) for phase in phases}
    assert all(value > 0 for value in seconds.values())
    assert module.VERSION.split()[0] in {"transformers", "torchtitan", "megatron-core"}


def test_a_framework_layer_computes_what_ours_does() -> None:
    """Sizes are those of one rank: as many parameters as our block has."""
    job = job_from_mapping(JOB)
    unit = next(unit for unit, _ in units(job, job.plan.pipeline.layout[0]) if unit.kind == "layer")
    sized = sizes(job, unit)
    count = sum(weight.numel() for weight in build(sized).parameters())
    makers = {
        "transformers": ("transformers_layers", lambda module: module.DecoderLayer(sized)),
        "torchtitan.models.llama3": ("torchtitan_layers", lambda module: module.Block(sized)),
        "megatron.core": ("megatron_core_layers", lambda module: module.TransformerLayer(sized, "cpu")),
    }
    for package, (adapter, make) in makers.items():
        try:
            importlib.import_module(package)
        except ImportError:
            continue
        layer = make(importlib.import_module(f"windtunnel.measure.torch.{adapter}"))
        assert sum(weight.numel() for weight in layer.parameters()) == count, package
