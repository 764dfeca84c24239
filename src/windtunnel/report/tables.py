"""The one look of every table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.table import Table


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1, title: str | None = None) -> Table:
    """A borderless table: the first ``left`` columns to the left, the others, being figures, to the right."""
    made = Table(
        box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, title=title, title_justify="left", title_style="bold"
    )
    for index, header in enumerate(headers):
        made.add_column(header, justify="left" if index < left else "right", overflow="fold")
    for row in rows:
        made.add_row(*row)
    return made
