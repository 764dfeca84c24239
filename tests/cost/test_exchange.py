"""Bytes of a token exchange against a simulation that routes every token, small and seeded."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.cost.collectives.exchange import Sent, distinct_targets, exchange_bytes
from windtunnel.cost.collectives.placement import Placement
from windtunnel.ops.op import ExpertExchange

TOKENS, ROW = 4000, 512


def exchange(dispatcher: str, copies: int, groups: int | None = None) -> ExpertExchange:
    return ExpertExchange(
        name="dispatch",
        phase="F",
        dispatcher=dispatcher,  # type: ignore[arg-type]
        tokens=TOKENS,
        row_bytes=ROW,
        experts_per_token=copies,
        groups_per_token=groups,
    )


def routed(ranks: int, copies: int) -> Iterator[tuple[int, list[int]]]:
    """A source rank and the ranks its copies go to, for every token of every rank."""
    generator = random.Random(11)
    for source in range(ranks):
        for _ in range(TOKENS):
            yield source, [generator.randrange(ranks) for _ in range(copies)]


def simulate(dispatcher: str, ranks: int, inside: int, copies: int) -> Sent:
    """Count the hops over each fabric, token by token, and average over the ranks."""
    scale_up = nic = 0
    for source, chosen in routed(ranks, copies):
        targets = list(range(ranks)) if dispatcher == "allgather" else chosen
        if dispatcher in ("alltoall", "allgather"):
            for target in targets:
                nic += target // inside != source // inside
                scale_up += target // inside == source // inside and target != source
            continue
        domains = {target // inside for target in targets}
        nic += len(domains - {source // inside})
        # Each domain is entered at the sender's own index; every other rank there takes one hop more.
        scale_up += sum(target % inside != source % inside for target in set(targets))
    return Sent(scale_up * ROW / ranks, nic * ROW / ranks)


@pytest.mark.parametrize("dispatcher", ["alltoall", "allgather", "deepep", "hybridep"])
@pytest.mark.parametrize(("ranks", "inside"), [(4, 4), (8, 4), (8, 8), (16, 4), (8, 1)])
@pytest.mark.parametrize("copies", [1, 2, 6])
def test_bytes_equal_a_simulation(dispatcher: str, ranks: int, inside: int, copies: int) -> None:
    found = exchange_bytes(exchange(dispatcher, copies), Placement(ranks, inside))
    counted = simulate(dispatcher, ranks, inside, copies)
    assert found.inside == pytest.approx(counted.inside, rel=0.02, abs=1)
    assert found.across == pytest.approx(counted.across, rel=0.02, abs=1)


def test_group_limited_routing_caps_the_domains_a_token_reaches() -> None:
    free = exchange_bytes(exchange("deepep", 8), Placement(64, 8))
    limited = exchange_bytes(exchange("deepep", 8, groups=4), Placement(64, 8))
    assert limited.across == TOKENS * ROW * 4 * 7 / 8 < free.across
    assert limited.inside == free.inside


def test_fused_dispatch_never_sends_more_than_every_copy() -> None:
    for ranks, inside in ((8, 8), (64, 8), (64, 64)):
        plain = exchange_bytes(exchange("alltoall", 8), Placement(ranks, inside))
        fused = exchange_bytes(exchange("deepep", 8), Placement(ranks, inside))
        assert fused.across <= plain.across


@pytest.mark.parametrize(
    ("ranks", "experts", "copies", "short"), [(8, 8, 2, 0.07), (64, 256, 8, 0.02), (8, 256, 8, 0.02)]
)
def test_independent_choices_stand_in_for_distinct_experts(ranks: int, experts: int, copies: int, short: float) -> None:
    """Top-k picks distinct experts: 1 − C(E − E/n, k)/C(E, k) of n ranks are reached, a little more than priced."""
    distinct = ranks * (1 - comb(experts - experts // ranks, copies) / comb(experts, copies))
    assert 1 - short < distinct_targets(ranks, copies) / distinct < 1


@given(
    ranks=st.sampled_from([2, 4, 8, 16, 64]),
    inside=st.sampled_from([1, 2, 4, 8, 64]),
    copies=st.integers(1, 16),
)
def test_what_all_to_all_sends_and_keeps_is_every_copy(ranks: int, inside: int, copies: int) -> None:
    placement = Placement(ranks, min(ranks, inside))
    sent = exchange_bytes(exchange("alltoall", copies), placement)
    assert sent.inside + sent.across + TOKENS * ROW * copies / ranks == pytest.approx(TOKENS * ROW * copies)


@given(parts=st.sampled_from([1, 2, 4, 8]), dispatcher=st.sampled_from(["alltoall", "allgather", "deepep", "hybridep"]))
def test_bytes_are_in_proportion_to_tokens(parts: int, dispatcher: str) -> None:
    """Ranks that share a sequence send, together, what one would send alone."""
    whole = exchange(dispatcher, 4)
    placement = Placement(16, 8)
    one, shard = exchange_bytes(whole, placement), exchange_bytes(replace(whole, tokens=TOKENS / parts), placement)
    assert (shard.inside * parts, shard.across * parts) == pytest.approx((one.inside, one.across))
