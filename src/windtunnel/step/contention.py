"""What traffic costs the compute it runs beside."""

from __future__ import annotations

from windtunnel.elementwise import Number, minimum


def contention(moved: Number, seconds: Number, window: Number, slowdown: float, link: float) -> Number:
    """Seconds by which concurrent traffic slows compute: by the bytes it moves through memory and links.

    ``moved`` bytes take ``seconds`` beside ``window`` seconds of compute; ``link`` is bytes/s of the scale-up fabric.
    """
    return slowdown * minimum(minimum(moved / link, seconds), window)
