"""Larger and smaller of two values that may be numbers or arrays."""

from __future__ import annotations

from typing import Any

Number = Any
"""A float, or a numpy array that broadcasts with the other arguments."""

TINY = 1e-30
"""Less than any number of seconds or bytes: divided by at least this, a share of nothing is 0."""


SCALAR = (float, int)


def maximum(a: Number, b: Number) -> Number:
    if isinstance(a, SCALAR) and isinstance(b, SCALAR):
        return max(a, b)
    from numpy import maximum as larger  # loaded already: one of the two is an array

    return larger(a, b)


def minimum(a: Number, b: Number) -> Number:
    if isinstance(a, SCALAR) and isinstance(b, SCALAR):
        return min(a, b)
    from numpy import minimum as smaller

    return smaller(a, b)
