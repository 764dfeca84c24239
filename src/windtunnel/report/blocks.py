"""What a written report is made of; how it looks is for the page that renders it, which also escapes its texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from windtunnel.report.drawing import Drawing


@dataclass(frozen=True, slots=True)
class Heading:
    text: str


@dataclass(frozen=True, slots=True)
class Paragraph:
    text: str


@dataclass(frozen=True, slots=True)
class Items:
    """A list of texts."""

    texts: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The first ``left`` columns hold words, the others figures; ``folded`` ones may be closed until asked for."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int = 1
    folded: str = ""


@dataclass(frozen=True, slots=True)
class Figure:
    drawing: Drawing
    caption: str


Block = Heading | Paragraph | Items | Table | Figure
