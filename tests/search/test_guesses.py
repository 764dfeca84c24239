"""What orders plans before anyone has tried them: the envelope, what trials correct of it, and the shapes of plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from math import exp
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.catalog.jobs import load_job
from windtunnel.catalog.rates import rates
from windtunnel.job import Job
from windtunnel.search.classes import degrees, shapes
from windtunnel.search.corrected import Corrections
from windtunnel.search.envelope import VALUES, Envelope, recomputed
from windtunnel.search.moves import Moves
from windtunnel.search.proposers import PROPOSERS, Ground
from windtunnel.search.space import Axis, Space, default_space

BASE: dict[str, Any] = {
    "model": "llama3.1-8b",
    "cluster": {"accelerator": "h100-sxm-80gb", "num_accelerators": 16},
    "software": {"framework": "megatron-core", "date": "2025-06"},
    "plan": {"batch": {"micro_batch_size": 1, "global_batch_size": 64, "sequence_length": 4096}},
}
PP, VIRTUAL = "plan.parallel.pp", "plan.pipeline.virtual_stages"


@pytest.fixture(scope="module")
def job() -> Job:
    return load_job(BASE)


def guess(job: Job, **changes: Any) -> float:
    """Seconds of a plan, by the last words of its paths."""
    moves = Moves(job, default_space(job))
    short = {path.rpartition(".")[2]: path for path in VALUES}
    plan = {short[name]: value for name, value in changes.items()}
    return Envelope(job, rates()).seconds(lambda path: plan[path] if path in plan else moves.value({}, path))


def test_a_step_is_at_least_its_flops(job: Job) -> None:
    part = job.cluster.accelerator
    flops = 6 * 8.03e9 * 64 * 4096 / 16
    least = flops / (part.peaks.half * part.gemm.bf16)
    assert 0.8 * least < guess(job) < 3 * least


def test_bubbles_follow_the_closed_form(job: Job) -> None:
    """A stage waits (p − 1) / v micro-batches; other terms do not depend on the schedule."""
    plain, split, half = (guess(job, pp=4, schedule=name) for name in ("1f1b", "zbv", "v_half"))
    assert split < half < plain
    assert (plain - half) / (plain - split) == pytest.approx((1 - 1 / 2) / (1 - 1 / 6))


def test_what_is_known_of_the_field_holds(job: Job) -> None:
    assert guess(job, tp=8, sequence_parallel=True) > guess(job, tp=2, sequence_parallel=True)
    assert guess(job, tp=2, sequence_parallel=True) < guess(job, tp=2, sequence_parallel=False)
    assert guess(job, recompute={"policy": "full"}) > guess(job, recompute={"policy": "none"})
    assert guess(job, grad_reduce=True) < guess(job, grad_reduce=False)
    assert guess(job, optimizer="cpu") > guess(job, optimizer="none")
    assert guess(job, tp=16) > 1.5 * guess(job, tp=8)


def test_experts_apart_cost_traffic_and_save_memory() -> None:
    moe = load_job(BASE, set={"model": "qwen3-30b-a3b", "cluster.accelerator": "h200-sxm-141gb"})
    value = {path: Moves(moe, default_space(moe)).value({}, path) for path in VALUES}
    one, eight = ({**value, "plan.parallel.ep": ep}.__getitem__ for ep in (1, 8))
    envelope = Envelope(moe, rates())
    assert envelope.bytes_of_states(eight) < envelope.bytes_of_states(one) / 2
    assert envelope._expert(_grid(eight)) > envelope._expert(_grid(one)) == 0


def _grid(value: Any) -> Any:
    from windtunnel.search.envelope import _Grid

    return _Grid(value)


@pytest.mark.parametrize(
    ("section", "share"),
    [
        ({"policy": "none"}, 0),
        ({"policy": "full"}, 1),
        ({"policy": "block", "num_layers": 2}, 0.25),
        ({"policy": "block", "num_layers": 99}, 1),
        ({"policy": "modules", "modules": ["layernorm"]}, 1 / 40),
        ({"policy": "modules", "modules": ["layernorm", "mlp"]}, 2 / 3 + 1 / 40),
    ],
)
def test_recomputation_in_shares_of_the_forward(section: Mapping[str, Any], share: float) -> None:
    assert recomputed(section, 8, rates()) == pytest.approx(share)


def test_one_trial_moves_its_values_most_of_the_way() -> None:
    found = Corrections(rates().belief)
    seen, other = found.features([("a", 1), ("b", 2)]), found.features([("a", 2), ("b", 2)])
    assert found.factor(seen) == 1
    found.learn(seen, 1.0, 2.0)
    assert found.factor(seen) == found.factor(other) == pytest.approx(2.0)
    found.learn(other, 1.0, 4.0)
    assert 2 < found.factor(seen) < found.factor(other) < 4
    assert found.hope(found.features([("a", 3), ("b", 2)])) < found.factor(found.features([("a", 3), ("b", 2)]))


@given(st.lists(st.floats(-0.3, 0.3), min_size=6, max_size=6))
def test_effects_of_values_are_found_again(effects: list[float]) -> None:
    """Every combination of three axes of two values, factors exact: all are told apart but for what is shrunk."""
    found = Corrections(rates().belief)
    for a, b, c in product((0, 1), repeat=3):
        factor = exp(effects[a] + effects[2 + b] + effects[4 + c])
        found.learn(found.features([("a", a), ("b", b), ("c", c)]), 3.0, 3.0 * factor)
    for a, b, c in product((0, 1), repeat=3):
        factor = exp(effects[a] + effects[2 + b] + effects[4 + c])
        spread = abs(effects[0] - effects[1]) + abs(effects[2] - effects[3]) + abs(effects[4] - effects[5])
        guessed = found.factor(found.features([("a", a), ("b", b), ("c", c)]))
        assert abs(guessed / factor - 1) <= spread * rates().belief.weight / 4 + 1e-3


def test_shapes_are_plans_of_the_space_each_once(job: Job) -> None:
    moves = Moves(job, default_space(job))
    found = list(shapes(moves))
    assert len({repr(sorted(shape.changes.items())) for shape in found}) == len(found) > 100
    for shape in found:
        assert degrees(moves, shape.changes) == shape.degrees
        world, tp, cp, pp, _ = shape.degrees
        assert world % (tp * cp * pp) == 0
    assert {shape.changes.get(PP, 1) for shape in found} >= {1, 2, 4, 8}


def test_what_a_space_pins_is_part_of_every_plan(job: Job) -> None:
    pinned = default_space(job).pinned({"plan.parallel.tp": (4,), "plan.batch.micro_batch_size": (2,)})
    moves = Moves(job, pinned)
    assert moves.pinned["plan.parallel.tp"] == 4
    assert moves.value({}, "plan.parallel.tp") == 4
    assert all(shape.changes["plan.parallel.tp"] == 4 for shape in shapes(moves))
    away = moves.moved({}, {PP: 2, VIRTUAL: 2})
    assert away is not None
    assert (away["plan.parallel.tp"], away["plan.batch.micro_batch_size"]) == (4, 2)


@pytest.mark.parametrize("name", PROPOSERS)
def test_the_first_plan_is_one_of_the_space(name: str, job: Job) -> None:
    space = default_space(job).pinned({"plan.parallel.tp": (2,)})
    proposer = PROPOSERS[name](Ground(job=job, space=space, rates=rates()))
    proposal = proposer.ask()
    assert proposal is not None
    assert proposal.changes["plan.parallel.tp"] == 2


def test_experts_are_not_split_with_the_rest(job: Job) -> None:
    """Frameworks let etp follow tp where nothing is said."""
    moe = load_job(BASE, set={"model": "qwen3-30b-a3b"})
    moves = Moves(moe, default_space(moe))
    wider = moves.moved({}, {"plan.parallel.tp": 4})
    assert wider is not None
    assert wider["plan.parallel.etp"] == 1


def test_a_space_of_one_plan_has_one_shape(job: Job) -> None:
    space = Space(tuple(replace(axis, values=axis.values[:1]) for axis in default_space(job).axes))
    assert len(list(shapes(Moves(job, space)))) == 1
    assert list(shapes(Moves(job, Space((Axis("plan.parallel.tp", (3,)),))))) == []


def test_where_time_is_not_the_aim_it_rules_nothing_out(job: Job) -> None:
    axes = default_space(job).pinned(
        {"cluster.num_accelerators": (8, 16), "plan.offload.activations": ("none", "full")}
    )
    ground = Ground(job=job, space=axes, rates=rates())
    fast, lean = (PROPOSERS["local"](replace(ground, by_time=by_time)) for by_time in (True, False))
    assert fast.trading == {"cluster.num_accelerators"}
    assert lean.trading >= {"cluster.num_accelerators", "plan.recompute", "plan.offload.optimizer"}
    assert any("plan.offload.activations" in rung for rung in fast.rungs)
