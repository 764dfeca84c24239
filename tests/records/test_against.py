"""An accuracy table against an earlier one."""

from __future__ import annotations

import copy

import pytest

from windtunnel.records.against import Regression, moves, regressions

TABLE = {
    "groups": {
        "speed": {"all": {"n": 9, "mape": 0.05, "median": 0.04, "p90": 0.1, "bias": -0.01, "within_bar": 0.8}},
        "memory": {},
    },
    "series": {"pooled": {"n": 9, "decided": 20, "ordered": 0.9, "regret": 0.01}},
    "fits": {"n": 9, "false_oom": 0, "borderline": 1, "missed_oom": 0},
}


def changed(*path, value):
    table = copy.deepcopy(TABLE)
    place = table
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return table


def test_the_same_table_is_not_worse():
    assert regressions(TABLE, TABLE) == ()


@pytest.mark.parametrize(
    ("path", "worse", "better"),
    [
        (("groups", "speed", "all", "mape"), 0.06, 0.04),
        (("groups", "speed", "all", "within_bar"), 0.7, 0.9),
        (("series", "pooled", "ordered"), 0.8, 1.0),
        (("series", "pooled", "regret"), 0.02, 0.0),
        (("fits", "missed_oom"), 1, 0),
    ],
)
def test_the_direction_of_each_figure(path, worse, better):
    before = TABLE
    for key in path:
        before = before[key]
    assert regressions(TABLE, changed(*path, value=worse)) == (
        Regression(figure=".".join(path), before=before, after=worse),
    )
    assert regressions(TABLE, changed(*path, value=better)) == ()


def test_noise_below_what_is_shown_and_missing_figures_do_not_count():
    assert regressions(TABLE, changed("groups", "speed", "all", "mape", value=0.0504)) == ()
    assert regressions(TABLE, changed("groups", "speed", "all", "mape", value=None)) == ()
    assert regressions(TABLE, changed("groups", "speed", value={"tight": {"mape": 0.9}})) == ()


def test_every_record_that_moved_is_named_the_largest_change_first():
    def rows(**errors):
        return {"records": [{"id": name, "quantity": "speed", "error": error} for name, error in errors.items()]}

    before = rows(a=0.10, b=0.10, c=0.10, d=0.10)
    after = rows(a=0.10, b=0.102, c=0.15, d=None, e=0.5)
    assert [(move.id, move.before, move.after) for move in moves(before, after)] == [
        ("d", 0.10, None),
        ("c", 0.10, 0.15),
    ]
