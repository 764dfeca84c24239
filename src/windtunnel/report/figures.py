"""Figures as people read them, in one spelling for every screen."""

from __future__ import annotations

from typing import Any

_EIGHTHS = " ▏▎▍▌▋▊▉"


def number(value: float) -> str:
    """At most six significant digits, no trailing zeros: ``26.25``, ``33``."""
    return f"{value:.6g}"


def thousands(value: float) -> str:
    """``1,118``; three significant digits below a hundred."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def signed_percent(value: float) -> str:
    return f"{100 * value:+.1f} %"


def gib(value: float) -> str:
    """Bytes as a bare number of GiB, for columns whose header names the unit; ``·`` for nothing at all."""
    return "·" if value == 0 else f"{value / 2**30:.2f}"


def shown(value: Any) -> str:
    """A job value as a job file spells it, long lists cut."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return number(value)
    if isinstance(value, list | tuple | set | frozenset):
        items = [shown(item) for item in (sorted(value) if isinstance(value, set | frozenset) else value)]
        return f"[{', '.join(items[:6])}{', …' if len(items) > 6 else ''}]"
    text = str(value)
    return text if len(text) <= 40 else text[:39] + "…"


def bar(share: float, width: int) -> str:
    """``share`` of ``width`` cells in unicode eighths."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    full, rest = divmod(eighths, 8)
    return "█" * full + (_EIGHTHS[rest] if rest else "")
