"""A drawing as marks on a sheet: what is drawn once is written as SVG or PNG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Point = tuple[float, float]
"""Pixels to the right and down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Points joined by straight lines."""

    points: Sequence[Point]
    color: str
    width: float = 1.0
    says: str = ""
    """What a reader who points at the mark is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    at: Point
    color: str
    radius: float = 4.0
    says: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """A text whose baseline starts, is centred, or ends at a point."""

    at: Point
    text: str
    anchor: Literal["start", "middle", "end"] = "start"


Mark = Line | Dot | Word


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """Marks in the order in which they are drawn."""

    width: int
    height: int
    marks: Sequence[Mark]
    label: str
    """What it shows, for who cannot see it."""
