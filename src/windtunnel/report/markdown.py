"""Blocks as Markdown in which no text can become a link, a picture, a tag or a column."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import quote

from windtunnel.report.blocks import Block, Figure, Heading, Items, Paragraph, Table
from windtunnel.report.figures import visible

_ACTIVE = re.compile(r"[\\`*\[\]<>|~&!$]|(?<![^\W_])_|_(?![^\W_])|(?<=:)//|(?<=www)\.", re.IGNORECASE)
"""What means something anywhere in a line; the last two make links of bare addresses."""
_FIRST = re.compile(r"^(?:#|[+-](?=[\s-]|$)|(\d+)(?=[.)](?:\s|$)))")
"""What makes a line another kind of block."""


def escaped(text: str) -> str:
    return _FIRST.sub(_apart, _ACTIVE.sub(lambda found: "\\" + found[0], visible(text)))


def _apart(found: re.Match[str]) -> str:
    """``\\#``, and ``1\\.`` for what would count."""
    return f"{found[1]}\\" if found[1] else f"\\{found[0]}"


def markdown(title: str, blocks: Sequence[Block], pictures: Sequence[str]) -> str:
    """A page; ``pictures`` are the names of the files that hold its figures, in their order."""
    names = iter(pictures)
    parts = (_picture(block, next(names)) if isinstance(block, Figure) else _written(block) for block in blocks)
    return "\n\n".join([f"# {escaped(title)}", *parts]) + "\n"


def _picture(figure: Figure, name: str) -> str:
    return f"![{escaped(figure.caption)}]({quote(name)})"


def _written(block: Heading | Paragraph | Items | Table) -> str:
    if isinstance(block, Heading):
        return f"## {escaped(block.text)}"
    if isinstance(block, Paragraph):
        return escaped(block.text)
    if isinstance(block, Items):
        return "\n".join(f"- {escaped(text)}" for text in block.texts)
    rule = ["---" if column < block.left else "---:" for column in range(len(block.head))]
    rows = [[escaped(cell) for cell in row] for row in (block.head, *block.rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in [rows[0], rule, *rows[1:]])
