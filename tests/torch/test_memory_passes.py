"""Every pass over memory that a job asks for runs alone, and every planned kernel is there."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch.nn")  # a folder of tests named torch would pass for the package itself
torch = pytest.importorskip("torch")

from windtunnel.catalog.jobs import job_from_mapping  # noqa: E402
from windtunnel.cost.profile_keys import op_key  # noqa: E402
from windtunnel.measure.plan import STREAMS, tasks_of  # noqa: E402
from windtunnel.measure.torch.blocks.experts import ExpertLayer  # noqa: E402
from windtunnel.measure.torch.peak import peak  # noqa: E402
from windtunnel.measure.torch.streams import PASSES, kind_of  # noqa: E402
from windtunnel.measure.worker import named  # noqa: E402
from windtunnel.ops.chunk import Unit  # noqa: E402
from windtunnel.ops.op import Stream  # noqa: E402
from windtunnel.ops.sizes import sizes  # noqa: E402

DENSE = {
    "name": "small", "num_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 128, "vocab_size": 256,
}  # fmt: skip
EXPERTS = DENSE | {"moe": {"num_experts": 4, "num_experts_per_token": 2, "moe_intermediate_size": 96}}


def job_of(model: dict[str, Any], **plan: Any) -> Any:
    return job_from_mapping(
        {
            "model": model,
            "cluster": {"accelerator": "h100-sxm-80gb", "num_accelerators": 2},
            "software": {"framework": "pytorch-fsdp", "date": "2026-06"},
            "plan": {
                "batch": {"micro_batch_size": 1, "global_batch_size": 2, "sequence_length": 32},
                "sharding": {"strategy": "ddp"},
                "precision": {"compute": "fp32"},
                **plan,
            },
        }
    )


def test_passes_are_those_of_the_plan() -> None:
    assert set(PASSES) == STREAMS


@pytest.mark.parametrize("model", [DENSE, EXPERTS], ids=["dense", "experts"])
def test_every_pass_runs_alone(model: dict[str, Any]) -> None:
    tasks = [task for task in tasks_of(job_of(model)) if task.kernel.endswith("streams:stream")]
    kinds = {kind_of(task.arguments[0].name) for task in tasks}  # type: ignore[attr-defined]
    routed = {"routing", "permute"}
    assert kinds == (STREAMS if "moe" in model else STREAMS - routed)
    for task in tasks:
        (described, *_) = task.arguments
        assert isinstance(described, Stream)
        ((key, seconds),) = named(task.kernel)("cpu", *task.arguments).run().items()
        assert key == op_key(described)
        assert seconds > 0


@pytest.mark.parametrize(("load", "rows"), [(1.0, 64), (1.5, 96), (0.5, 32)])
def test_a_loaded_rank_executes_the_rows_it_gets(load: float, rows: int) -> None:
    routing = {"routing": "skewed", "imbalance": load} if load > 1 else {"capacity_factor": load} if load < 1 else {}
    job = job_of(EXPERTS, moe=routing)
    sized = sizes(job, Unit(kind="layer", layer=job.model.layers[0]))
    assert sized.experts is not None
    assert sized.experts.load == load
    torch.manual_seed(0)
    module, seen = ExpertLayer(sized, frozenset()), []
    run = module._experts
    module._experts = lambda rows, counts: seen.append(counts) or run(rows, counts)  # type: ignore[method-assign]
    out = module(torch.randn(1, 32, 64, requires_grad=True))
    out.sum().backward()
    assert sum(seen[0]) == rows
    if load > 1:
        assert seen[0][0] == max(seen[0])


def test_a_peak_is_the_highest_sum_of_what_is_alive() -> None:
    def work() -> None:
        first = torch.empty(2**20, dtype=torch.int8)
        second = torch.empty(2**21, dtype=torch.int8)
        del first, second
        torch.empty(2**20, dtype=torch.int8)

    assert peak(work, "cpu").allocated == pytest.approx(3 * 2**20, abs=4096)


def test_a_backward_that_executes_again_is_measured() -> None:
    job = job_of(DENSE, recompute={"policy": "full"})
    (task,) = (task for task in tasks_of(job) if task.kernel.endswith("kernels:again"))
    (measured,) = named(task.kernel)("cpu", *task.arguments).run().items()
    assert measured[0] == task.keys[0]
    assert measured[1] > 0
    assert not any(task.kernel.endswith("kernels:again") for task in tasks_of(job_of(DENSE)))
