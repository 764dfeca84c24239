"""Quantities: every unit of the job format, the traps around it, and exact round trips."""

from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel import units
from windtunnel.units import Dimension, UnitError, parse

FLOATS = st.floats(min_value=1e-9, max_value=1e18, allow_nan=False)


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("80 GiB", "bytes", 80 * 2**30), ("141 GB", "bytes", 141e9), ("30 MiB", "bytes", 30 * 2**20),
        ("512 B", "bytes", 512), ("1 kB", "bytes", 1e3), ("1 KiB", "bytes", 1024), ("2 TiB", "bytes", 2**41),
        ("0 B", "bytes", 0), ("3.35 TB/s", "bandwidth", 3.35e12), ("400 Gb/s", "bandwidth", 50e9),
        ("8 b/s", "bandwidth", 1), ("1 Tb/s", "bandwidth", 125e9), ("5 us", "time", 5e-6), ("20 ms", "time", 0.02),
        ("14.65 s", "time", 14.65), ("2 min", "time", 120), ("3 h", "time", 10800), ("1 d", "time", 86400),
        ("1979 TFLOP/s", "flops", 1979e12), ("1 PFLOP/s", "flops", 1e15), ("5 GFLOP/s", "flops", 5e9),
        ("1830 MHz", "frequency", 1.83e9), ("1.98 GHz", "frequency", 1.98e9), ("700 W", "power", 700),
        ("80GiB", "bytes", 80 * 2**30), ("  1e3 W ", "power", 1000), (".5 s", "time", 0.5), ("1E-3 s", "time", 1e-3),
    ],
)  # fmt: skip
def test_every_unit_of_the_job_format(text: str, dimension: Dimension, value: float) -> None:
    assert parse(text, dimension) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    ("text", "dimension", "words"),
    [
        ("80 Gb", "bytes", "80 Gb are bits; capacity is in bytes: write 80 GB or 80 GiB"),
        ("80", "bytes", "has no unit"), (80, "bytes", "has no unit"), (80.5, "time", "has no unit"),
        (True, "bytes", "not bool"), (None, "power", "not NoneType"), (["1 s"], "time", "not list"),
        ("900 GB", "bandwidth", "write 900 GB/s"), ("400 GB/s", "bytes", "is a bandwidth, not a size"),
        ("5 s", "power", "is a duration, not a power"), ("80 gib", "bytes", "case-sensitive"),
        ("1 TFLOPS", "flops", "one of GFLOP/s, TFLOP/s, PFLOP/s"), ("1 TFLOP", "flops", "unknown unit"),
        ("nan s", "time", "not finite"), ("inf GB", "bytes", "not finite"), ("1e400 GB", "bytes", "not finite"),
        ("-1 GB", "bytes", "at least 0"), ("-5 us", "time", "at least 0"), ("0 GB/s", "bandwidth", "above 0"),
        ("0 W", "power", "above 0"), ("-0.0 TFLOP/s", "flops", "above 0"), ("1e-999 TB/s", "bandwidth", "above 0"),
        ("", "bytes", "does not start with a number"), ("GB", "bytes", "does not start with a number"),
        ("1,000 GB", "bytes", "unknown unit"), ("1 2 GB", "bytes", "unknown unit"), ("1__0 s", "time", "unknown unit"),
        ("0x10 B", "bytes", "unknown unit"), ("9" * 10_000 + " GB", "bytes", "does not start with a number"),
    ],
)  # fmt: skip
def test_what_is_refused_names_rule_and_remedy(text: object, dimension: Dimension, words: str) -> None:
    with pytest.raises(UnitError, match=r".+") as refusal:
        parse(text, dimension)
    assert words in str(refusal.value)
    assert refusal.value.rule
    assert refusal.value.remedy
    assert isinstance(refusal.value, ValueError)
    assert len(str(refusal.value)) < 300


@given(value=FLOATS, dimension=st.sampled_from(["bytes", "bandwidth", "time", "power"]))
def test_formatted_quantities_read_back_exactly(value: float, dimension: Dimension) -> None:
    assert parse(units.format_quantity(value, dimension), dimension) == value


@given(value=FLOATS, dimension=st.sampled_from(["flops", "frequency"]))
def test_rates_without_a_base_unit_read_back_to_the_last_bit_but_one(value: float, dimension: Dimension) -> None:
    assert parse(units.format_quantity(value, dimension), dimension) == pytest.approx(value, rel=4e-16)


@given(number=st.integers(1, 9999), data=st.data(), dimension=st.sampled_from(list(units.UNITS)))
def test_no_unit_belongs_to_two_dimensions(number: int, data: st.DataObject, dimension: Dimension) -> None:
    unit = data.draw(st.sampled_from(list(units.UNITS[dimension])))
    for other in units.UNITS:
        if other != dimension:
            with pytest.raises(UnitError):
                parse(f"{number} {unit}", other)


@given(st.text(max_size=80), st.sampled_from(list(units.UNITS)))
def test_any_text_is_a_value_or_a_refusal(text: str, dimension: Dimension) -> None:
    with contextlib.suppress(UnitError):
        assert math.isfinite(parse(text, dimension))


@pytest.mark.parametrize(
    ("value", "dimension", "text"),
    [
        (80 * 2**30, "bytes", "80 GiB"), (80e9, "bytes", "80 GB"), (0.0, "bytes", "0.0 B"),
        (50e9, "bandwidth", "50 GB/s"),
        (14.65, "time", "14.65 s"), (5e-6, "time", "5 us"), (989.4e12, "flops", "989.4 TFLOP/s"),
        (700.0, "power", "700 W"), (7200.0, "time", "7200 s"),
    ],
)  # fmt: skip
def test_the_shortest_exact_text_is_written(value: float, dimension: Dimension, text: str) -> None:
    assert units.format_quantity(value, dimension) == text


def test_numbers_for_people() -> None:
    assert units.human_bytes(62.17 * 2**30) == "62.2 GiB"
    assert [units.human_seconds(s) for s in (4.31e-4, 0.0146, 2.351, 3.2 * 3600, 12.4 * 86400, 150)] == [
        "431 us", "14.6 ms", "2.35 s", "3.2 h", "12.4 d", "2.5 min",
    ]  # fmt: skip
    assert units.human_rate(450e9) == "450 GB/s"
    assert units.human_rate(989e12, "FLOP/s") == "989 TFLOP/s"
    assert units.human_rate(12_500, "tokens/s") == "12.5 k tokens/s"
    assert units.human_rate(950, "tokens/s") == "950 tokens/s"
    assert [units.human_count(n) for n in (70.6e9, 128, 1.5e6, 14.8e12, 0)] == ["70.6 B", "128", "1.5 M", "14.8 T", "0"]
