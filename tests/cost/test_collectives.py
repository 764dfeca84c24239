"""Collectives: placement on tiers, bytes against a brute-force count, limits that hold for any fabric."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windtunnel.catalog.constants import constants
from windtunnel.catalog.hardware import find_accelerator
from windtunnel.cost.collectives.all_reduce import all_reduce, tree
from windtunnel.cost.collectives.exchange import all_to_all, distinct_targets
from windtunnel.cost.collectives.placement import Placement, place, placements, strides
from windtunnel.cost.collectives.ring import gather, nic
from windtunnel.job.cluster import Cluster
from windtunnel.job.plan import Parallel


def cluster(name: str = "h100-sxm-80gb", accelerators: int = 64) -> Cluster:
    found = find_accelerator(name)
    return Cluster(
        accelerator=found.accelerator,
        num_accelerators=accelerators,
        accelerators_per_node=found.system.accelerators_per_node,
        scale_up=found.system.scale_up,
        scale_out=found.system.scale_out,
        host=found.system.host,
    )


def test_groups_lie_on_the_tiers_their_order_gives() -> None:
    """Ranks counted tp first: tp inside a node, cp pairs 4 apart inside it, replicas and stages across nodes."""
    placed = placements(Parallel(tp=4, cp=2, pp=4, dp=2, ep=8, etp=1), cluster())
    assert placed["tp"] == Placement(4, 4)
    assert placed["cp"] == Placement(2, 2)
    assert placed["dp"] == Placement(4, 2)
    assert placed["pp"] == Placement(4, 1)
    assert placed["ep"] == Placement(8, 8)


def test_strides_follow_the_order() -> None:
    parallel = Parallel(tp=2, cp=2, pp=2, dp=4, order=("tp", "pp", "cp", "ep", "dp"))
    assert strides(parallel) == {"tp": 1, "pp": 2, "cp": 4, "dp": 8}


def test_a_domain_of_72_holds_64_neighbours() -> None:
    assert place(64, 1, cluster("gb200-192gb", 64)) == Placement(64, 64)


@settings(max_examples=60, deadline=None)
@given(
    size=st.floats(1e3, 1e10),
    ranks=st.sampled_from([2, 4, 8, 16, 64, 256]),
    name=st.sampled_from(["h100-sxm-80gb", "a100-sxm-80gb", "gb200-192gb", "mi355x", "tpu-v5p"]),
)
def test_a_gather_is_never_faster_than_its_wires(size: float, ranks: int, name: str) -> None:
    where = cluster(name, ranks)
    placed = place(ranks, 1, where)
    seconds = gather(size, placed, where, constants().collective)
    wire = where.scale_up.bandwidth if not placed.crosses else nic(where) * placed.inside
    assert seconds >= size * (ranks - 1) / ranks / wire
    assert gather(2 * size, placed, where, constants().collective) > seconds


@given(ranks=st.sampled_from([2, 4, 8, 16, 64]), size=st.floats(1e3, 1e10))
def test_an_all_reduce_is_never_slower_than_a_ring(ranks: int, size: float) -> None:
    where = cluster()
    placed = place(ranks, 1, where)
    one = gather(size, placed, where, constants().collective)
    assert all_reduce(size, placed, where, constants().collective) <= 2 * one


@pytest.mark.parametrize("ranks", [2, 8, 64])
def test_a_large_all_reduce_moves_its_data_twice_unless_switches_reduce(ranks: int) -> None:
    where = cluster()
    placed = place(ranks, 1, where)
    one = gather(4e9, placed, where, constants().collective)
    assert 1.3 * one < all_reduce(4e9, placed, where, constants().collective) <= 2 * one


def test_a_tree_wins_where_latency_rules() -> None:
    where, rates = cluster(accelerators=1024), constants().collective
    placed = place(1024, 1, where)
    assert all_reduce(1e5, placed, where, rates) == tree(1e5, placed, where, rates)
    assert all_reduce(1e11, placed, where, rates) < tree(1e11, placed, where, rates)


def test_one_rank_communicates_nothing() -> None:
    assert gather(1e9, Placement(1, 1), cluster(), constants().collective) == 0
    assert all_to_all(1e9, Placement(1, 1), cluster(), constants().collective, constants().expert) == 0


@pytest.mark.parametrize(("ranks", "copies"), [(8, 2), (8, 8), (64, 8), (4, 6)])
def test_distinct_targets_equal_a_simulation_of_routed_tokens(ranks: int, copies: int) -> None:
    """Each of k independent, uniform choices; a token travels once per distinct rank."""
    generator = random.Random(7)
    draws = 20_000
    found = sum(len({generator.randrange(ranks) for _ in range(copies)}) for _ in range(draws)) / draws
    assert distinct_targets(ranks, copies) == pytest.approx(found, rel=0.01)
