"""Speed of schedules against their budgets: ``make bench`` prints each figure beside what it may be.

Processor seconds, so that a busy machine says the same. *cached*: the order is known, every span of the timeline is
read. *uncached*: order, program and timeline from nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from time import process_time

import pytest

from windtunnel.schedule import registry
from windtunnel.schedule.action import Order
from windtunnel.schedule.dependencies import compile_order
from windtunnel.schedule.registry import build_order
from windtunnel.step.timeline import ChunkDurations, execute

pytestmark = pytest.mark.benchmark(timer=process_time)

SIZES = {
    "1f1b": 1, "zb_h1": 1, "zb_heuristic": 1, "interleaved_1f1b": 2, "interleaved_zb": 2, "looped_bfs": 2,
    "1f1b_ep_overlap": 2, "zbv": 2, "v_half": 2, "v_min": 2, "dualpipe": 1, "dualpipe_v": 2,
}  # fmt: skip
"""Chunks per stage."""

CACHED, UNCACHED, LONG = 0.003, 0.030, 2.0
"""Seconds: p = 16 and m = 128, with and without a cached order; p = 64 and m = 2,048 without."""

COSTS = (1.0, 1.3, 0.8, 0.1)
"""F, B, W and a hop, unequal so that nothing is short by chance."""


@pytest.fixture(scope="module", autouse=True)
def figures(request: pytest.FixtureRequest) -> Iterator[dict[str, tuple[float, float]]]:
    """Collects (median, budget) and prints them when the file is done."""
    found: dict[str, tuple[float, float]] = {}
    yield found
    lines = [
        f"  {name:<44}{1e3 * seconds:9.2f} ms   budget {1e3 * budget:7.0f} ms   {seconds / budget:5.0%}"
        for name, (seconds, budget) in found.items()
    ]
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        sys.stdout.write("\n" + "\n".join(lines) + "\n")


def read(order: Order) -> float:
    """Execute and look at every span."""
    share = 1 / order.virtual_stages
    durations = [ChunkDurations(*(seconds * share for seconds in COSTS[:3]))] * order.num_chunks
    return sum(span.end for row in execute(order, durations, COSTS[3]).spans for span in row)


def forget() -> None:
    """Empty what knows an order or its program."""
    registry._build.cache_clear()
    compile_order.cache_clear()


def from_nothing(name: str, p: int, m: int) -> Callable[[], float]:
    return lambda: read(build_order(name, p, m, SIZES[name], memory_cap=p, costs=COSTS))


@pytest.mark.parametrize("name", SIZES)
def test_cached(name, benchmark, figures):
    order = build_order(name, 16, 128, SIZES[name], memory_cap=16, costs=COSTS)
    benchmark.pedantic(read, args=(order,), rounds=30, warmup_rounds=2)
    figures[f"timeline {name}, p=16 m=128, cached"] = benchmark.stats.stats.median, CACHED


@pytest.mark.parametrize("name", SIZES)
def test_uncached(name, benchmark, figures):
    benchmark.pedantic(from_nothing(name, 16, 128), setup=forget, rounds=15, warmup_rounds=1)
    figures[f"timeline {name}, p=16 m=128, uncached"] = benchmark.stats.stats.median, UNCACHED


@pytest.mark.parametrize("name", SIZES)
def test_long(name, benchmark, figures):
    benchmark.pedantic(from_nothing(name, 64, 2048), setup=forget, rounds=2)
    figures[f"timeline {name}, p=64 m=2048, uncached"] = benchmark.stats.stats.median, LONG
