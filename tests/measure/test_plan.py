"""What is worth measuring: what the projection asks for, by its share of the step and how well it is known."""

from __future__ import annotations

import pytest

from windtunnel.cost.profile import Entry, Profile
from windtunnel.measure.network import GRID, KINDS, questions
from windtunnel.measure.plan import tasks_of
from windtunnel.measure.suite import SUITES, suite


def test_the_layer_comes_first(make_job):
    tasks = tasks_of(make_job())
    assert tasks[0].label.startswith("whole layer")
    values = [task.value for task in tasks]
    assert values == sorted(values, reverse=True)
    assert all(len(set(task.keys)) == len(task.keys) for task in tasks)


def test_shapes_are_those_of_a_rank(make_job):
    alone, shared = (tasks_of(make_job({"plan.parallel.tp": tp}))[0].arguments[0] for tp in (1, 4))
    assert (shared.heads, shared.width) == (alone.heads // 4, alone.width // 4)
    assert shared.tokens == alone.tokens


def test_what_is_known_is_worth_less(make_job):
    job = make_job()
    first = tasks_of(job)[0]
    known = tuple(Entry(key=key, seconds=1.0, low=0.99, high=1.01, repeats=9) for key in first.keys)
    again = tasks_of(job, Profile(device=(), software=(), method=(), entries=known))
    same = next(task for task in again if task.keys == first.keys)
    assert same.uncertainty == pytest.approx(0.01)
    assert again[0].keys != first.keys


def test_every_degree_asks_for_its_own_collectives(make_job):
    asked = questions(make_job({"plan.parallel.tp": 2}), 2)
    kinds = {question.kind for question in asked}
    assert {"all_gather", "reduce_scatter", "all_reduce", "beside"} <= kinds
    sizes = {question.size for question in asked if question.kind == "all_gather"}
    assert sizes > set(GRID)
    assert len({question.key for question in asked}) == len(asked) > len(KINDS) * len(GRID)


@pytest.mark.parametrize("name", SUITES)
def test_a_suite_has_no_key_twice(name: str):
    keys = [key for task in suite(name) for key in task.keys]
    assert len(keys) == len(set(keys)) > 10
