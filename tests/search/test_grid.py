"""Grid points by number."""

from __future__ import annotations

from itertools import product

import pytest

from windtunnel.search.space import LAYOUT, ORDER, SCHEDULE, Axis, Space

SPACE = Space(
    (
        Axis(ORDER, ("near", "far")),
        Axis("plan.parallel.pp", (1, 2, 4)),
        Axis(LAYOUT, ("even", "balanced")),
        Axis("plan.parallel.tp", (1, 2)),
        Axis("plan.recompute", ({"policy": "none"},)),
        Axis(SCHEDULE, ("1f1b", "gpipe")),
        Axis("plan.batch.micro_batch_size", (1, 2, 4)),
    )
)


def test_every_combination_has_one_number() -> None:
    grid = SPACE.grid
    values = {axis.path: axis.values for axis in SPACE.axes if axis.path != "plan.recompute"}
    every = [frozenset(zip(values, combination, strict=True)) for combination in product(*values.values())]
    assert len(grid) == len(every) == 144
    assert sorted(map(sorted, every)) == sorted(sorted(point.items()) for point in grid)


@pytest.mark.parametrize("most", [1, 5, 24, 1000])
def test_runs_hold_every_point_once_and_one_shape_each(most: int) -> None:
    grid = SPACE.grid
    runs = list(grid.runs(most))
    assert [number for run in runs for number in run] == list(range(len(grid)))
    for run in runs:
        assert len(run) <= most
        assert len({(grid[n]["plan.parallel.tp"], grid[n]["plan.batch.micro_batch_size"]) for n in run}) == 1


def test_group_orders_of_a_point_are_neighbours() -> None:
    grid = SPACE.grid
    assert {**grid[0], ORDER: "far"} == grid[1]
    assert {**grid[142], ORDER: "far"} == grid[143]
