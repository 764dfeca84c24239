"""Every fitted number has a birth certificate, and there are few of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from windtunnel.catalog.constants import FITTED, Certificate, certificates

DATA = Path(__file__).parents[1] / "data"
SOURCES = frozenset(file.stem for file in (DATA / "ground_truth").glob("*.yaml"))
CALIBRATED = [known for known in certificates() if known.fitted is not None]


def ids(known: Certificate) -> str:
    return known.name


def test_at_most_twenty_five_are_fitted_and_eight_of_them_on_one_source():
    kinds = [known.kind for known in certificates()]
    assert kinds.count("global") + kinds.count("scoped") <= 25
    assert kinds.count("scoped") <= 8


def test_every_fitted_constant_of_time_says_how_it_was_fitted():
    assert {k.name for k in certificates() if k.kind in FITTED and not k.name.startswith("memory.")} == {
        known.name for known in CALIBRATED
    }


@pytest.mark.parametrize("known", CALIBRATED, ids=ids)
def test_a_certificate_is_whole(known: Certificate):
    fitted = known.fitted
    assert fitted is not None
    low, high = fitted.bounds
    assert low <= known.value <= high
    assert low <= fitted.neutral <= high
    assert set(fitted.on) <= SOURCES
    if fitted.on:
        assert fitted.records >= len(fitted.on)
        assert known.kind == ("scoped" if len(fitted.on) == 1 else "global")
        assert fitted.helps is not None
        helps = fitted.helps > 0 or fitted.better > fitted.worse
        assert helps, "a constant that does not help runs it has not seen is neutral"
    else:
        assert known.value == fitted.neutral, "what no run speaks for is neutral"


def test_the_constants_are_those_of_the_committed_calibration():
    committed = json.loads((DATA / "calibration.json").read_text())
    shipped = {known.name: known.value for known in CALIBRATED}
    assert shipped == pytest.approx({c["name"]: c["value"] for c in committed["constants"]}, rel=1e-3)
