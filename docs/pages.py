"""What the scripts that write tables into the pages share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path


def rewrite(page: Path, sections: Mapping[str, str]) -> None:
    """Put what was made between the marks of a page."""
    text = page.read_text(encoding="utf-8")
    for name, body in sections.items():
        text, count = re.subn(
            rf"(<!-- {name} -->\n).*?(<!-- end -->)", lambda m, body=body: m[1] + body + m[2], text, flags=re.DOTALL
        )
        assert count == 1, f"{page.name} has no section {name}"
    page.write_text(text, encoding="utf-8")


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose first column holds words and whose others hold figures."""
    line = "|" + "|".join(["---"] + ["--:"] * (len(heads) - 1)) + "|"
    return "\n".join([f"| {' | '.join(heads)} |", line, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"
