"""A profile answers what was measured, interpolates monotonically within a stated error, and refuses the rest."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.cost.profile import Entry, Profile, diff, interpolate, key, merge, monotone
from windtunnel.errors import FormatError


def entry(size: float, seconds: float, *, k: float = 8.0, spread: float = 0.0) -> Entry:
    low, high = seconds * (1 - spread), seconds * (1 + spread)
    return Entry(key=gemm(size, k), seconds=seconds, low=low, high=high, repeats=5)


def gemm(m: float, k: float = 8.0):
    return key("gemm", "forward", "bf16", {"m": m, "n": 4, "k": k})


def profile(*entries: Entry, device: str = "here") -> Profile:
    return Profile(device=(("name", device),), software=(("torch", "2"),), method=(), entries=entries)


def test_a_measured_shape_is_answered_as_measured():
    found = profile(entry(1, 1.0, spread=0.1), entry(2, 2.0)).estimate(gemm(1))
    assert (found.seconds, found.evidence) == (1.0, "measured")
    assert found.error == pytest.approx(0.1)


def test_between_two_sizes_is_interpolated():
    found = profile(entry(1, 1.0), entry(2, 2.0)).estimate(gemm(1.5))
    assert (found.seconds, found.evidence) == (1.5, "interpolated")


@pytest.mark.parametrize("size", [0.5, 3.0])
def test_outside_of_what_was_measured_is_not_answered(size: float):
    assert profile(entry(1, 1.0), entry(2, 2.0)).estimate(gemm(size)) is None


def test_neighbours_that_differ_in_two_sizes_are_no_neighbours():
    assert profile(entry(1, 1.0, k=4), entry(2, 2.0, k=8)).estimate(gemm(1.5)) is None


def test_another_dtype_or_pass_is_another_kernel():
    known = profile(entry(1, 1.0))
    assert known.estimate(replace(gemm(1), dtype="fp32")) is None
    assert known.estimate(replace(gemm(1), phase="grad_input")) is None


@given(
    a=st.floats(0, 10), b=st.floats(0.01, 10), q=st.floats(0.5, 2.0),
    n0=st.floats(1, 100), step=st.floats(1.2, 8), at=st.floats(0.01, 0.99),
)  # fmt: skip
def test_the_stated_error_holds_for_every_law_it_names(a, b, q, n0, step, at):
    def law(n: float) -> float:
        return a + b * n**q

    n1 = n0 * step
    n = n0 + at * (n1 - n0)
    found = interpolate(n, (n0, entry(n0, law(n0))), (n1, entry(n1, law(n1))))
    assert abs(found.seconds - law(n)) <= found.error * found.seconds * (1 + 1e-9) + 1e-9


@given(st.lists(st.floats(0.1, 10), min_size=3, max_size=12), st.data())
def test_interpolation_never_falls(seconds, data):
    known = profile(*(entry(index + 1, value) for index, value in enumerate(seconds)))
    low = data.draw(st.floats(1.01, len(seconds) - 0.01))
    high = data.draw(st.floats(low, len(seconds) - 0.005))
    answers = [known.estimate(gemm(size)) for size in (low, high)]
    if all(answer.evidence == "interpolated" for answer in answers):
        assert answers[0].seconds <= answers[1].seconds * (1 + 1e-12)


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=12))
def test_pooling_keeps_the_sum_and_makes_a_staircase(seconds):
    pooled = [e.seconds for e in monotone(tuple(entry(index, value) for index, value in enumerate(seconds)))]
    assert pooled == sorted(pooled)
    assert sum(pooled) == pytest.approx(sum(seconds))
    if seconds == sorted(seconds):
        assert pooled == seconds


def test_merging_keeps_the_newer_entry():
    merged = merge(profile(entry(1, 1.0), entry(2, 2.0)), profile(entry(2, 3.0), entry(4, 5.0)))
    assert {(dict(e.key.shape)["m"], e.seconds) for e in merged.entries} == {(1, 1.0), (2, 3.0), (4, 5.0)}


def test_profiles_of_two_devices_are_not_merged():
    with pytest.raises(FormatError, match="one device and one software"):
        merge(profile(entry(1, 1.0)), profile(entry(1, 1.0), device="there"))


def test_a_difference_lists_the_largest_change_first():
    changes = diff(profile(entry(1, 1.0), entry(2, 2.0), entry(3, 1.0)), profile(entry(1, 1.1), entry(2, 4.0)))
    assert [change.ratio for change in changes] == [2.0, 1.1, None]
