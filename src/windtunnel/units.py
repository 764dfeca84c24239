"""Quantities with units, at the edges only: text to SI floats and back.

GB = 1e9 bytes, GiB = 2^30 bytes, Gb = 1e9 bits. Inside the package every number is SI.
"""

from __future__ import annotations

import math
import re
from typing import Literal

Dimension = Literal["bytes", "bandwidth", "time", "flops", "frequency", "power"]

_PREFIXES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_BYTES = {f"{p}B": factor for p, factor in _PREFIXES.items()} | {
    f"{p}iB": 1024.0 ** (power + 1) for power, p in enumerate("KMGT")
}

UNITS: dict[Dimension, dict[str, float]] = {
    "bytes": _BYTES,
    "bandwidth": {
        f"{p}{bit}/s": factor / size for p, factor in _PREFIXES.items() for bit, size in (("B", 1), ("b", 8))
    },
    "time": {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0},
    "flops": {"GFLOP/s": 1e9, "TFLOP/s": 1e12, "PFLOP/s": 1e15},
    "frequency": {"MHz": 1e6, "GHz": 1e9},
    "power": {"W": 1.0},
}
"""Unit text to its factor in SI, by dimension."""

_NAMES: dict[Dimension, str] = {
    "bytes": "a size", "bandwidth": "a bandwidth", "time": "a duration", "flops": "a compute rate",
    "frequency": "a frequency", "power": "a power",
}  # fmt: skip
_EXAMPLES: dict[Dimension, str] = {
    "bytes": "80 GiB or 141 GB", "bandwidth": "3.35 TB/s or 400 Gb/s", "time": "5 us or 14.65 s",
    "flops": "1979 TFLOP/s", "frequency": "1830 MHz", "power": "700 W",
}  # fmt: skip
_ZERO_ALLOWED = frozenset({"bytes", "time"})
_QUANTITY = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[+-]?(?:nan|inf(?:inity)?))\s*(.*?)\s*", re.I)
_BITS = re.compile(r"([kMGT]?)b")
_LONGEST = 64


class UnitError(ValueError):
    """A quantity that breaks a rule; ``rule`` says which, ``remedy`` what to write instead."""

    def __init__(self, rule: str, remedy: str) -> None:
        self.rule = rule
        self.remedy = remedy
        super().__init__(f"{rule}: {remedy}")


def parse(text: object, dimension: Dimension) -> float:
    """The SI value of a quantity such as ``"80 GiB"``: bytes, bytes/s, seconds, FLOP/s, Hz or watts.

    Raises:
        UnitError: a bare number, an unknown unit, a unit of another dimension, or a value that is not finite,
            negative, or zero where zero makes no sense (only sizes and durations may be zero).
    """
    number, unit = _split(text, dimension)
    factor = UNITS[dimension].get(unit)
    if factor is None:
        raise UnitError(*_wrong_unit(number, unit, dimension))
    # 5 · 1e-6 is not the double nearest to 5e-6, 5 / 1e6 is.
    value = float(number) * factor if factor >= 1 else float(number) / round(1 / factor)
    if not math.isfinite(value):
        raise UnitError(f"{text} is not finite", f"write {_NAMES[dimension]} such as {_EXAMPLES[dimension]}")
    if value < 0 or (value == 0 and dimension not in _ZERO_ALLOWED):
        bound = "at least 0" if dimension in _ZERO_ALLOWED else "above 0"
        raise UnitError(f"{text} must be {bound}", f"write {_NAMES[dimension]} such as {_EXAMPLES[dimension]}")
    return value


def _split(text: object, dimension: Dimension) -> tuple[str, str]:
    wanted = f"{_NAMES[dimension]} needs a number and a unit"
    remedy = f"write it like {_EXAMPLES[dimension]}"
    if isinstance(text, (int, float)) and not isinstance(text, bool):
        raise UnitError(f"{wanted}, and {text} has no unit", remedy)
    if not isinstance(text, str):
        raise UnitError(f"{wanted}, not {type(text).__name__}", remedy)
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise UnitError(f"{wanted}, and {text[:_LONGEST]!r} does not start with a number", remedy)
    if not match[2]:
        raise UnitError(f"{wanted}, and {text!r} has no unit", remedy)
    return match[1], match[2]


def _wrong_unit(number: str, unit: str, dimension: Dimension) -> tuple[str, str]:
    """Rule and remedy for a unit that does not belong to the dimension."""
    bits = _BITS.fullmatch(unit)
    if dimension == "bytes" and bits:
        prefix = bits[1]
        both = f"{number} {prefix}B or {number} {prefix.upper()}iB" if prefix else f"{number} B"
        return f"{number} {unit} are bits; capacity is in bytes", f"write {both}"
    if dimension == "bandwidth" and unit in _BYTES:
        return f"{number} {unit} is a size, not a bandwidth", f"write {number} {unit.replace('i', '')}/s"
    same = next((known for known in UNITS[dimension] if known.lower() == unit.lower()), None)
    if same:
        return f"unknown unit {unit!r} (units are case-sensitive)", f"write {number} {same}"
    owner = next((other for other, units in UNITS.items() if unit in units), None)
    if owner:
        return f"{number} {unit} is {_NAMES[owner]}, not {_NAMES[dimension]}", f"write it like {_EXAMPLES[dimension]}"
    return f"unknown unit {unit[:_LONGEST]!r}", f"{_NAMES[dimension]} is in one of {', '.join(UNITS[dimension])}"


def format_quantity(value: float, dimension: Dimension) -> str:
    """The shortest text that ``parse`` reads back to the same value, in a unit that keeps the number at 1 or above."""
    units = UNITS[dimension]
    texts = [(f"{value / units[unit]:.15g} {unit}", unit) for unit in _preferred(dimension) if value >= units[unit]]
    exact = [text for text, _ in texts if parse(text, dimension) == value]
    if exact:
        return min(exact, key=len)
    unit = min(units, key=lambda known: abs(math.log(units[known])))
    return f"{value / units[unit]!r} {unit}"


def _preferred(dimension: Dimension) -> list[str]:
    """Units worth printing, largest first: no bits, and no minutes, hours or days that hide seconds."""
    units = [unit for unit in UNITS[dimension] if "b/s" not in unit and unit not in ("min", "h", "d")]
    return sorted(units, key=UNITS[dimension].__getitem__, reverse=True)


def human_bytes(value: float) -> str:
    """Bytes for people, in GiB: ``62.2 GiB``."""
    return f"{value / 2**30:.1f} GiB"


def human_seconds(value: float) -> str:
    """Seconds for people: ``431 us``, ``14.6 ms``, ``2.35 s``, ``3.2 h``, ``12.4 d``."""
    if value < 120:
        unit, factor = next(((u, f) for u, f in (("s", 1.0), ("ms", 1e-3)) if value >= f), ("us", 1e-6))
        return f"{value / factor:.3g} {unit}"
    unit, factor = next(((u, f) for u, f in (("d", 86400.0), ("h", 3600.0)) if value >= 2 * f), ("min", 60.0))
    return f"{value / factor:.1f} {unit}"


def human_rate(value: float, unit: str = "B/s") -> str:
    """A rate with a decimal prefix: ``450 GB/s``, ``989 TFLOP/s``; of counted things: ``12.5 k tokens/s``."""
    prefix, factor = _prefix(value)
    gap = "" if unit[:1].isupper() else " " if prefix else ""
    return f"{value / factor:.3g} {prefix}{gap}{unit}"


def human_count(value: float) -> str:
    """A count in thousands, millions, billions (B) or trillions: ``70.6 B``, ``128``."""
    prefix, factor = _prefix(value)
    text = f"{value / factor:.1f}" if factor > 1 else f"{value:g}"
    return f"{text} {prefix.replace('G', 'B')}".strip()


def _prefix(value: float) -> tuple[str, float]:
    prefixes = [(p, f) for p, f in (_PREFIXES | {"P": 1e15}).items() if abs(value) >= f and p]
    return prefixes[-1] if prefixes else ("", 1.0)
