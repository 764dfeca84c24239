"""A drawing as PNG, by Pillow, which brings its own letters: the extra ``png``."""

from __future__ import annotations

from io import BytesIO

from PIL import Image, ImageColor, ImageDraw, ImageFont

from windtunnel.report.drawing import Dot, Drawing, Line, Mark
from windtunnel.report.figures import visible

SCALE = 2
"""Pixels of the file to one of the drawing."""
LETTERS = 12
ANCHORS = {"start": "ls", "middle": "ms", "end": "rs"}
"""Pillow's names: left, middle or right, on the baseline."""


def png(drawing: Drawing) -> bytes:
    image = Image.new("RGB", (SCALE * drawing.width, SCALE * drawing.height), "white")
    pen = ImageDraw.Draw(image, "RGBA")
    font = ImageFont.load_default(size=SCALE * LETTERS)
    for mark in drawing.marks:
        _draw(pen, font, mark)
    file = BytesIO()
    image.save(file, "PNG", optimize=True)
    return file.getvalue()


def _draw(pen: ImageDraw.ImageDraw, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, mark: Mark) -> None:
    if isinstance(mark, Line):
        points = [(SCALE * x, SCALE * y) for x, y in mark.points]
        pen.line(points, fill=mark.color, width=round(SCALE * mark.width))
        return
    x, y = (SCALE * value for value in mark.at)
    if isinstance(mark, Dot):
        radius = SCALE * mark.radius
        red, green, blue = ImageColor.getrgb(mark.color)[:3]
        pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=(red, green, blue, 178))
    else:
        pen.text((x, y), visible(mark.text), fill="black", font=font, anchor=ANCHORS[mark.anchor])
