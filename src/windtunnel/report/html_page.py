"""Blocks as one HTML file: nothing is loaded, nothing runs, every text is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from windtunnel.report.blocks import Block, Figure, Heading, Items, Paragraph, Table
from windtunnel.report.figures import visible
from windtunnel.report.svg import svg

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
h1 { font-size: 1.6rem } h2 { font-size: 1.2rem; margin-top: 2rem; border-bottom: 1px solid #ddd }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 14px }
th, td { padding: .2rem .7rem; border-bottom: 1px solid #eee; text-align: left; vertical-align: top }
td { overflow-wrap: anywhere } .figure { text-align: right; white-space: nowrap }
div.wide { overflow-x: auto } svg { max-width: 100%; height: auto } figure { margin: 0 } figcaption { color: #555 }
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""What a browser may do with the page: show it."""


def html_page(title: str, blocks: Sequence[Block]) -> str:
    name = _text(title)
    return "\n".join(
        [
            f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{name}</title>',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<style>{STYLE}</style>\n</head>\n<body>\n<h1>{name}</h1>",
            *map(_written, blocks),
            "</body>\n</html>\n",
        ]
    )


def _text(text: str) -> str:
    return escape(visible(text))


def _written(block: Block) -> str:
    if isinstance(block, Heading):
        return f"<h2>{_text(block.text)}</h2>"
    if isinstance(block, Paragraph):
        return f"<p>{_text(block.text)}</p>"
    if isinstance(block, Items):
        return "<ul>" + "".join(f"<li>{_text(text)}</li>" for text in block.texts) + "</ul>"
    if isinstance(block, Figure):
        return f"<figure>{svg(block.drawing)}<figcaption>{_text(block.caption)}</figcaption></figure>"
    return _table(block)


def _table(block: Table) -> str:
    kinds = ["" if column < block.left else ' class="figure"' for column in range(len(block.head))]
    head = "".join(f"<th{kind}>{_text(cell)}</th>" for kind, cell in zip(kinds, block.head, strict=True))
    rows = "".join(
        "<tr>" + "".join(f"<td{kind}>{_text(cell)}</td>" for kind, cell in zip(kinds, row, strict=True)) + "</tr>\n"
        for row in block.rows
    )
    made = f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>\n{rows}</tbody></table></div>'
    return f"<details><summary>{_text(block.folded)}</summary>{made}</details>" if block.folded else made
