"""Rates and prices of a search's proposals: each says what it is, and a file that does not fit is refused."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from windtunnel.catalog.files import load_data
from windtunnel.catalog.rates import FILE, FOLDER, Rate, every_rate, rates, rates_of
from windtunnel.errors import FormatError


@pytest.fixture
def document() -> Any:
    return deepcopy(load_data(FOLDER, FILE))


@pytest.mark.parametrize("rate", every_rate(), ids=lambda rate: rate.name)
def test_every_rate_says_what_it_is_and_where_it_comes_from(rate: Rate) -> None:
    assert rate.value >= 0
    assert all(len(text) > 3 for text in (rate.unit, rate.means, rate.kind, rate.source))
    assert not rate.unit.startswith("share of a") or rate.value <= 1
    if rate.kind == "assumed":
        assert rate.source.startswith(("round figure", "that of"))


def test_a_fraction_is_the_nearest_number() -> None:
    assert rates().bubble["zb_h1"] == 1 / 3
    assert rates().modules["mlp"] == 2 / 3
    assert rates().recompute.light == 1 / 40


def test_ways_of_sharding_keep_the_order_of_the_file() -> None:
    assert list(rates().sharding) == ["zero1", "hsdp", "zero2", "fsdp", "zero3"]


def _without(*path: str) -> Any:
    def change(document: Any) -> None:
        for name in path[:-1]:
            document = document[name]
        del document[path[-1]]

    return change


def _with(*path: Any) -> Any:
    def change(document: Any) -> None:
        for name in path[:-2]:
            document = document[name]
        document[path[-2]] = path[-1]

    return change


ENTRY = {"value": 1, "unit": "share", "means": "a share", "kind": "assumed", "source": "round figure"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_without("belief"), "belief: is missing"),
        (_without("bubble"), "bubble: is missing"),
        (_without("envelope", "hidden"), "envelope.hidden: is missing"),
        (_without("sharding", "zero3"), "sharding.zero3: is missing"),
        (_without("ladder", "host", "unit"), "ladder.host.unit: is missing"),
        (_without("ladder", "host", "source"), "ladder.host.source: is missing"),
        (_with("prices", {}), "prices: is not a known name"),
        (_with("envelope", "hiden", ENTRY), "envelope.hiden: is not a known name"),
        (_with("bubble", "zb_h9", ENTRY), "bubble.zb_h9: is not a known name"),
        (_with("modules", "mlps", ENTRY), "modules.mlps: is not a known name"),
        (_with("sharding", "ddp", ENTRY), "sharding.ddp: is not a known name"),
        (_with("ladder", "host", "note", "x"), "ladder.host.note: is not a known name"),
        (_with("ladder", "host", "value", "1/0"), "ladder.host.value = 1/0: a number from 0 up is due"),
        (_with("ladder", "host", "value", -0.1), "ladder.host.value = -0.1: a number from 0 up is due"),
        (_with("ladder", "host", "value", True), "ladder.host.value = True: a number from 0 up is due"),
        (_with("ladder", "host", "kind", "guess"), "ladder.host.kind = guess: a kind is measured, cited, assumed"),
        (_with("ladder", "host", "source", " "), "ladder.host.source =  : text is due"),
        (_with("ladder", "host", 0.04), "ladder.host = 0.04: a mapping is due"),
        (_with("ladder", 3), "ladder = 3: a mapping of entries is due"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(document: Any, change: Any, said: str) -> None:
    change(document)
    with pytest.raises(FormatError) as refused:
        rates_of(document)
    assert f"search/proposals.yaml: {said}" in str(refused.value)


def test_every_fault_is_named_at_once(document: Any) -> None:
    del document["envelope"]["hidden"], document["belief"]
    with pytest.raises(FormatError) as refused:
        rates_of(document)
    assert len(refused.value.faults) == 2


@pytest.mark.parametrize("document", [None, [], "text"])
def test_a_file_of_something_else_is_refused(document: object) -> None:
    with pytest.raises(FormatError, match="a mapping of groups is due"):
        rates_of(document)
