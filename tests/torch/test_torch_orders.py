"""Our orders are those of torch.distributed.pipelining: as it plans them, and as real ranks carry them out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from windtunnel.schedule.action import Order
from windtunnel.schedule.registry import applicable, build_order, placement

# not "torch": this folder bears that name, and an empty package of it would pass for the real one
pipelining = pytest.importorskip("torch.distributed.pipelining")


torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")
mp = pytest.importorskip("torch.multiprocessing")
fake = pytest.importorskip("torch.testing._internal.distributed.fake_pg")

CLASSES = {
    "gpipe": pipelining.ScheduleGPipe,
    "1f1b": pipelining.Schedule1F1B,
    "looped_bfs": pipelining.ScheduleLoopedBFS,
    "interleaved_1f1b": pipelining.ScheduleInterleaved1F1B,
    "interleaved_zb": pipelining.ScheduleInterleavedZeroBubble,
    "zbv": pipelining.ScheduleZBVZeroBubble,
    "dualpipe_v": pipelining.schedules.ScheduleDualPipeV,
}
KINDS = {"FORWARD": "F", "BACKWARD_INPUT": "B", "BACKWARD_WEIGHT": "W", "FULL_BACKWARD": "BW"}
PLANNED = ["looped_bfs", "interleaved_1f1b", "interleaved_zb", "zbv", "dualpipe_v"]
LOOPED = PLANNED[:3]
SIZES = [*((name, v) for name in LOOPED for v in (2, 3, 4)), ("zbv", 2), ("dualpipe_v", 2)]
Row = list[tuple[str, int, int]]


def group_size(p: int, m: int) -> int:
    """Micro-batches per round in torch: m over the number of whole p in m. The default of megatron-core is p."""
    return m // max(1, m // p)


def our_order(name: str, p: int, m: int, v: int) -> Order:
    return build_order(name, p, m, v, microbatch_group_size=group_size(p, m), all_forward_at_m_equals_p=False)


def our_row(order: Order, rank: int) -> Row:
    """Kind, micro-batch and global chunk of every action of ``rank``."""
    return [(kind, microbatch, order.placement[rank][chunk]) for kind, microbatch, chunk in order.actions[rank]]


def planned(name: str, p: int, m: int, v: int) -> Any:
    """The schedule object of rank 0, built without any peer."""
    dist.init_process_group("fake", store=fake.FakeStore(), rank=0, world_size=p)
    try:
        held = placement(name, p, v)[0]
        device = torch.device("cpu")
        stages = [pipelining.PipelineStage(torch.nn.Identity(), i, p * len(held), device) for i in held]
        return CLASSES[name](stages, n_microbatches=m, loss_fn=lambda output, target: output.sum())
    finally:
        dist.destroy_process_group()


def torch_row(actions: list[Any]) -> Row:
    """One rank's plan without its waiting slots; a pair counts as its two actions."""
    parts = [part for action in actions if action is not None for part in action.sub_actions or (action,)]
    return [(KINDS[part.computation_type.name], part.microbatch_index, part.stage_index) for part in parts]


@pytest.mark.parametrize("m_of_p", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("p", [2, 3, 4, 8])
@pytest.mark.parametrize(
    ("name", "v"), [*((name, v) for name in LOOPED for v in (2, 3, 4)), ("zbv", 2), ("dualpipe_v", 2)]
)
def test_plans_agree(name: str, v: int, p: int, m_of_p: int) -> None:
    m = p * m_of_p
    if applicable(name, p, m, v) is not None:
        with pytest.raises(ValueError, match="microbatches"):
            planned(name, p, m, v)
        return
    order, plan = our_order(name, p, m, v), planned(name, p, m, v).pipeline_order
    assert [our_row(order, rank) for rank in range(p)] == [torch_row(plan[rank]) for rank in range(p)]


@pytest.mark.parametrize(("p", "m"), [(3, 4), (3, 5), (4, 7), (8, 9), (8, 15)])
@pytest.mark.parametrize("name", [*LOOPED, "zbv"])
def test_plans_agree_where_stages_do_not_divide_micro_batches(name: str, p: int, m: int) -> None:
    """The looped ones take all m in one round in torch, which ours do when the group size says so."""
    order, plan = our_order(name, p, m, 2), planned(name, p, m, 2).pipeline_order
    assert [our_row(order, rank) for rank in range(p)] == [torch_row(plan[rank]) for rank in range(p)]


@pytest.mark.parametrize(("p", "m"), [(4, 8), (8, 16), (8, 32)])
def test_the_overlapped_pairs_agree(p: int, m: int) -> None:
    order, plan = our_order("dualpipe_v", p, m, 2), planned("dualpipe_v", p, m, 2).pipeline_order
    for rank in range(p):
        positions, at = [], 0
        for action in plan[rank]:
            if action is None:
                continue
            if action.sub_actions:
                positions.append(at)
            at += len(action.sub_actions or (action,))
        assert list(order.overlapped[rank]) == positions


def record(stage: Any, seen: Row) -> None:
    """Note every call that computes, in the sequence in which this rank makes them."""

    def noting(call: Callable[..., Any], kind: Callable[[dict[str, Any]], str]) -> Callable[..., Any]:
        def noted(microbatch: int, *arguments: Any, **options: Any) -> Any:
            seen.append((kind(options), microbatch, stage.stage_index))
            return call(microbatch, *arguments, **options)

        return noted

    stage.forward_one_chunk = noting(stage.forward_one_chunk, lambda _: "F")
    full = lambda options: "BW" if options.get("full_backward", True) else "B"  # noqa: E731
    stage.backward_one_chunk = noting(stage.backward_one_chunk, full)
    stage.backward_weight_one_chunk = noting(stage.backward_weight_one_chunk, lambda _: "W")


def loss(output: Any, target: Any) -> Any:
    return torch.nn.functional.mse_loss(output, target)


def one_rank(rank: int, name: str, p: int, m: int, v: int, folder: str) -> None:
    """Train one step over gloo and write down what was executed."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=p)
    held, width = placement(name, p, v)[rank], 8
    device, seen = torch.device("cpu"), []
    stages = [pipelining.PipelineStage(torch.nn.Linear(width, width), i, p * len(held), device) for i in held]
    for stage in stages:
        record(stage, seen)
    schedule = CLASSES[name](stages if len(stages) > 1 else stages[0], n_microbatches=m, loss_fn=loss)
    inputs = (torch.randn(m, width),) if 0 in held else ()
    target = torch.randn(m, width) if p * len(held) - 1 in held else None
    schedule.step(*inputs, target=target)
    torch.save(seen, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


EXECUTED = [
    ("gpipe", 2, 4, 1),
    ("1f1b", 2, 4, 1),
    ("1f1b", 4, 8, 1),
    ("interleaved_1f1b", 2, 4, 2),
    ("interleaved_1f1b", 4, 8, 2),
    ("interleaved_zb", 2, 4, 2),
    ("interleaved_zb", 4, 8, 2),
    ("zbv", 2, 4, 2),
    ("zbv", 4, 8, 2),
    ("dualpipe_v", 2, 4, 2),
]


@pytest.mark.parametrize(("name", "p", "m", "v"), EXECUTED)
def test_real_ranks_execute_our_order(name: str, p: int, m: int, v: int, tmp_path: Path) -> None:
    mp.spawn(one_rank, args=(name, p, m, v, str(tmp_path)), nprocs=p)
    order = our_order(name, p, m, v)
    for rank in range(p):
        seen = torch.load(tmp_path / f"{rank}.pt")
        assert [tuple(action) for action in seen] == our_row(order, rank)
