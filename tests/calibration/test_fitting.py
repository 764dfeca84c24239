"""The fit of constants: it finds what made the errors, within bounds, and says what left-out runs think of it."""

from __future__ import annotations

from collections.abc import Sequence
from math import log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windtunnel.calibration.fit import CLIP, Free, Trial, fit, gain, heard, linearise, objective, paired, without

SLOPES = np.array([[0.5, 0.0], [0.4, 0.1], [0.0, 0.6], [0.1, 0.5], [0.3, 0.3], [0.2, 0.0]])
"""d log step time / d log constant of six runs."""
WEIGHTS = np.ones(6)
NOBODY = {"a": np.zeros(6, dtype=bool), "b": np.zeros(6, dtype=bool)}


def free(low: float = 0.1, high: float = 10.0) -> list[Free]:
    return [Free(name=name, start=1.0, neutral=1.0, low=low, high=high) for name in ("a", "b")]


def measured_with(a: float, b: float, extra: Sequence[float] = (0,) * 6):
    """Errors of a model whose step is a power of two constants, where the runs were made with ``a`` and ``b``."""

    def evaluate(trials: Sequence[Trial]):
        truth = SLOPES @ np.array([log(a), log(b)]) + np.array(extra)
        found = [truth - SLOPES @ np.array([log(values["a"]), log(values["b"])]) for values, _ in trials]
        return [
            errors if only is None else np.where(only, errors, np.nan)
            for errors, (_, only) in zip(found, trials, strict=True)
        ]

    return evaluate


def fitted(evaluate, constants: list[Free]):
    start = linearise(evaluate, constants, {constant.name: constant.start for constant in constants})
    return fit(evaluate, constants, WEIGHTS, NOBODY, start, iterations=8)


@settings(max_examples=25, deadline=None)
@given(a=st.floats(0.5, 3.0), b=st.floats(0.5, 3.0))
def test_it_finds_the_constants_that_made_the_runs(a: float, b: float):
    found = fitted(measured_with(a, b), free())
    assert found.values["a"] == pytest.approx(a, rel=0.02)
    assert found.values["b"] == pytest.approx(b, rel=0.02)
    assert objective(found.errors, WEIGHTS) < 0.01


def test_it_gives_the_same_answer_twice():
    evaluate = measured_with(1.7, 0.6)
    assert fitted(evaluate, free()).values == fitted(evaluate, free()).values


def test_a_bound_holds_and_the_rest_is_still_fitted():
    found = fitted(measured_with(3.0, 1.5), free(high=2.0))
    assert found.values["a"] == pytest.approx(2.0)
    assert 1.0 < found.values["b"] <= 2.0


def test_a_run_that_resists_everything_pulls_at_nothing():
    wild = (0, 0, 0, 0, 0, 4 * CLIP)
    assert fitted(measured_with(1.5, 1.2, wild), free()).values["a"] == pytest.approx(1.5, rel=0.03)


def test_runs_that_may_not_speak_do_not_decide():
    unseen = {"a": np.array([True, True, False, False, True, True]), "b": NOBODY["b"]}
    at = linearise(measured_with(2.0, 1.0), free(), {"a": 1.0, "b": 1.0})
    speaks = heard(at, free(), WEIGHTS, unseen)
    assert speaks[:, 0].tolist() == [False, False, False, True, False, False]


def test_leaving_out_the_only_runs_that_move_a_constant_leaves_it_neutral():
    evaluate = measured_with(2.0, 1.5)
    best = fitted(evaluate, free())
    out = np.array([True, True, False, True, True, True])
    values = without(best, free(), WEIGHTS, NOBODY, out)
    assert values["a"] == 1.0
    assert values["b"] == pytest.approx(1.5, rel=0.05)


def test_a_true_constant_helps_runs_that_were_left_out_and_a_false_one_does_not():
    groups = [np.array([index // 2 == group for index in range(6)]) for group in range(3)]
    evaluate = measured_with(2.0, 1.0)
    best = fitted(evaluate, free())
    neutral = {"a": {**best.values, "a": 1.0}, "b": {**best.values, "b": 1.0}}
    errors = dict(zip(neutral, evaluate([(values, None) for values in neutral.values()]), strict=True))
    true = gain(best, free(), 0, errors["a"], WEIGHTS, NOBODY, groups)
    assert true.pooled > 0.05
    assert (true.better, true.worse) == (3, 0)
    assert true.helps
    false = gain(best, free(), 1, errors["b"], WEIGHTS, NOBODY, groups)
    assert false.pooled == pytest.approx(0, abs=0.01)


def test_a_gain_is_that_of_unseen_runs_and_doubts_what_one_group_alone_says():
    groups = [np.arange(4) == index for index in range(4)]
    weights = np.ones(4)
    without = np.array([0.1, -0.1, 0.1, 0.1])
    alike = paired(without, without / 2, weights, groups)
    assert (alike.pooled, alike.error) == pytest.approx((0.05, 0.0))
    assert (alike.better, alike.worse, alike.helps) == (4, 0, True)
    one = paired(without, np.array([0.0, -0.1, 0.1, 0.1]), weights, groups)
    assert one.pooled == pytest.approx(0.025)
    assert one.error == pytest.approx(0.025)
    assert not paired(without, without, weights, groups).helps
