"""The one look of every table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text


def table(
    headers: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1, title: str | None = None
) -> RenderableType:
    """A borderless table: the first ``left`` columns to the left, the others, being figures, to the right."""
    made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for index, header in enumerate(headers):
        made.add_column(header, justify="left" if index < left else "right", overflow="fold", no_wrap=index == 0)
    for row in rows:
        made.add_row(*map(Text, row))
    return made if title is None else Group(Text(title, style="bold"), made)
