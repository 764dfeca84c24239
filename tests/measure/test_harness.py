"""The harness: results are kept, kernels may crash, hang or eat memory, the order is value and chance."""

from __future__ import annotations

import random

import pytest
from kernels import key_of, task

from windtunnel.catalog.profiles import read_profile
from windtunnel.cost.profile import Profile
from windtunnel.errors import FormatError
from windtunnel.measure.harness import BLOCK, Bench, run
from windtunnel.measure.session import session
from windtunnel.measure.statistics import entry, outliers, precise, settled, throttled
from windtunnel.measure.worker import Effort

EFFORT = Effort(warm_up=0.05, sampling=0.05, timeout=10.0, memory=2**29)
BENCH = Bench(prepare="kernels:prepare", effort=EFFORT)
HERE = Profile(device=(("name", "test"),), software=(("torch", "0"),), method=(), entries=())


def test_what_crashes_or_eats_memory_costs_one_entry_and_one_warning():
    tasks = [task("steady", "a", 0.4), task("segfault"), task("eat"), task("steady", "b", 0.01)]
    results = {result.task.label: result for result in run(tasks, BENCH)}
    assert {name for name, result in results.items() if result.entries} == {"a", "b"}
    assert "signal 11" in results["segfault"].warning
    assert "MemoryError" in results["eat"].warning
    assert not results["a"].warning


def test_what_hangs_costs_one_entry_and_one_warning():
    bench = Bench(prepare="kernels:prepare", effort=Effort(warm_up=0.01, sampling=0.01, timeout=3.0))
    found = list(run([task("hang", share=0.9), task("steady")], bench))
    assert [bool(result.entries) for result in sorted(found, key=lambda result: result.task.label)] == [False, True]
    assert any("no answer within 3 s" in result.warning for result in found)


def test_a_co_runner_runs_beside():
    bench = Bench(prepare="kernels:prepare", effort=EFFORT, co_runners=1)
    (result,) = run([task("steady")], bench)
    assert result.entries[0].seconds == 1e-3


def test_most_valuable_first_and_by_chance_within_a_block():
    tasks = [task("steady", f"t{index:02}", share=1 - index / 100) for index in range(2 * BLOCK)]
    random.Random(1).shuffle(tasks)
    labels = [result.task.label for result in run(tasks, BENCH)]
    first = {f"t{index:02}" for index in range(BLOCK)}
    assert set(labels[:BLOCK]) == first
    assert labels != sorted(labels)


def test_a_budget_ends_the_run():
    tasks = [task("steady", f"t{index}") for index in range(1000)]
    assert 0 < sum(1 for _ in run(tasks, BENCH, budget=0.3)) < 1000


def test_a_warm_up_is_left_out():
    (result,) = run([task("slow")], Bench(prepare="kernels:prepare", effort=Effort(warm_up=1.0, timeout=10.0)))
    assert result.entries[0].seconds == pytest.approx(1e-3, rel=0.1)


def test_a_session_is_taken_up_where_it_was_left(tmp_path):
    path = str(tmp_path / "p.yaml")
    tasks = [task("steady", name) for name in ("a", "b", "c")]
    assert len(list(session(tasks[:2], path, BENCH, empty=HERE))) == 2
    assert [result.task.label for result in session(tasks, path, BENCH, empty=HERE)] == ["c"]
    assert {entry.key for entry in read_profile(path).entries} == {key_of(name) for name in ("a", "b", "c")}


def test_a_profile_of_another_machine_is_not_continued(tmp_path):
    path = str(tmp_path / "p.yaml")
    list(session([task("steady")], path, BENCH, empty=HERE))
    other = Profile(device=(("name", "other"),), software=HERE.software, method=(), entries=())
    with pytest.raises(FormatError, match="one device"):
        list(session([task("steady", "b")], path, BENCH, empty=other))


def test_statistics():
    series = [1.0] * 20 + [9.0]
    assert outliers(series) == 1
    found = entry(key_of("x"), series)
    assert (found.seconds, found.low, found.high, found.repeats) == (1.0, 1.0, 1.0, 21)
    assert found.remarks == ("1 outliers",)
    assert settled([5, 4, 3, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1])
    assert not settled([5, 4, 3, 2, 1, 1, 1, 1, 1, 1])
    assert precise([1.0] * 5, 5)
    assert not precise([1.0, 2.0, 1.0, 2.0, 1.5], 5)
    assert throttled([1.0, 1.02, 1.06])
    assert not throttled([1.0, 1.04])
