"""How far each schedule is from the best possible one under its own memory: a constraint solver proves the optimum."""

from __future__ import annotations

from itertools import product

import pytest

from windtunnel.schedule.action import Order, Placement
from windtunnel.schedule.base import looped
from windtunnel.schedule.in_flight import peak_in_flight
from windtunnel.schedule.registry import build_order
from windtunnel.step.timeline import ChunkDurations, execute

cp_model = pytest.importorskip("ortools.sat.python.cp_model")


def optimum(placement: Placement, m: int, cap: int, *, split: bool = True, span: bool = False) -> int:
    """Fewest slots for F = B = W = 1 per chunk and free hops, with ``cap`` chunks of micro-batches kept on a rank.

    ``span`` counts from the first start to the last end on each rank, which is how the zero-bubble paper counts.
    """
    model = cp_model.CpModel()
    rank_of = {chunk: rank for rank, held in enumerate(placement) for chunk in held}
    last, kinds = len(rank_of) - 1, {"F": 1, "B": 1, "W": 1} if split else {"F": 1, "B": 2}
    horizon = 3 * (m + len(placement)) * len(placement[0]) * 2
    start = {key: model.new_int_var(0, horizon, str(key)) for key in product(kinds, range(m), range(last + 1))}
    end = {key: start[key] + kinds[key[0]] for key in start}
    done = "W" if split else "B"
    for _, i, chunk in (key for key in start if key[0] == "F"):
        waits = [(("F", i, chunk), ("B", i, chunk)), (("B", i, chunk), (done, i, chunk))][: 1 + split]
        if chunk < last:
            waits += [(("F", i, chunk), ("F", i, chunk + 1)), (("B", i, chunk + 1), ("B", i, chunk))]
        for before, after in waits:
            model.add(start[after] >= end[before])
        for kind in kinds if i else ():  # micro-batches are alike, so one sequence of them is enough
            model.add(start[kind, i, chunk] >= end[kind, i - 1, chunk])
    length = model.new_int_var(0, horizon, "length")
    for rank, held in enumerate(placement):
        mine = [key for key in start if rank_of[key[2]] == rank]
        model.add_no_overlap([model.new_fixed_size_interval_var(start[k], kinds[k[0]], "") for k in mine])
        kept = [
            model.new_interval_var(start["F", i, c], model.new_int_var(0, horizon, ""), end[done, i, c], "")
            for i in range(m)
            for c in held
        ]
        model.add_cumulative(kept, [1] * len(kept), cap)
        begun = start["F", 0, min(held)] if span else 0
        for chunk in held:
            model.add(length >= end[done, m - 1, chunk] - begun)
    model.minimize(length)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds, solver.parameters.num_workers = 60, 2
    assert solver.solve(model) == cp_model.OPTIMAL
    return round(solver.objective_value)


def slots(order: Order) -> float:
    return execute(order, [ChunkDurations(1.0, 1.0, 1.0)] * order.num_chunks).makespan


@pytest.mark.parametrize(("cap", "span"), [(4, 27), (7, 24)])
def test_the_published_zero_bubble_optima(cap: int, span: int) -> None:
    assert optimum(looped(4, 1), 8, cap, span=True) == span


GAPS = {
    ("gpipe", 3, 6, 1): 0, ("1f1b", 3, 6, 1): 0, ("looped_bfs", 2, 4, 2): 0, ("interleaved_1f1b", 2, 4, 2): 0,
    ("zb_h1", 3, 6, 1): 0, ("zb_heuristic", 3, 6, 1): 0, ("interleaved_zb", 2, 4, 2): 0, ("zbv", 2, 4, 2): 0,
    ("v_half", 2, 4, 2): 0, ("v_min", 2, 4, 2): 1, ("dualpipe_v", 2, 4, 2): 1, ("1f1b_ep_overlap", 2, 4, 2): 0,
}  # fmt: skip
"""Slots of a chunk above the optimum."""


@pytest.mark.parametrize(("name", "p", "m", "v"), GAPS)
def test_no_schedule_beats_the_optimum_and_its_gap_is_known(name: str, p: int, m: int, v: int) -> None:
    order = build_order(name, p, m, v, memory_cap=p)
    split = any(action.kind == "W" for row in order.actions for action in row)
    cap = round(max(peak_in_flight(order)) * v)
    assert slots(order) - optimum(order.placement, m, cap, split=split) == GAPS[name, p, m, v]
