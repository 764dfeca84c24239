"""A drawing as SVG, in one piece and without anything to load."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from windtunnel.report.drawing import Dot, Drawing, Line, Mark
from windtunnel.report.figures import visible


def svg(drawing: Drawing) -> str:
    size = f'width="{drawing.width}" height="{drawing.height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {drawing.width} {drawing.height}" {size} role="img" '
            f'aria-label="{escape(visible(drawing.label))}" font-family="sans-serif" font-size="12">',
            f'<rect {size} fill="white"/>',
            *(_mark(mark) for mark in drawing.marks),
            "</svg>\n",
        ]
    )


def _mark(mark: Mark) -> str:
    if isinstance(mark, Line):
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in mark.points)
        look = f'fill="none" stroke="{mark.color}" stroke-width="{mark.width:g}"'
        return f'<polyline points="{points}" {look}>{"".join(_title(mark.says))}</polyline>'
    x, y = mark.at
    if isinstance(mark, Dot):
        look = f'r="{mark.radius:g}" fill="{mark.color}" fill-opacity="0.7"'
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" {look}>{"".join(_title(mark.says))}</circle>'
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{mark.anchor}">{escape(visible(mark.text))}</text>'


def _title(says: str) -> Iterator[str]:
    if says:
        yield f"<title>{escape(visible(says))}</title>"
