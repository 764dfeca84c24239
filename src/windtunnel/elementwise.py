"""Larger and smaller of two values that may be numbers or arrays, without asking which."""

from __future__ import annotations

from typing import Any

Number = Any
"""A float, or a numpy array that broadcasts with the other arguments."""

TINY = 1e-30
"""Less than any number of seconds or bytes: divided by at least this, a share of nothing is 0."""


def maximum(a: Number, b: Number) -> Number:
    return (a + b + abs(a - b)) / 2


def minimum(a: Number, b: Number) -> Number:
    return (a + b - abs(a - b)) / 2
