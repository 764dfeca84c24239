"""Figures as people read them, in one spelling for every screen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from windtunnel.report.plain import plain
from windtunnel.units import human_bytes, human_rate, human_seconds

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
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {shown(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple | set | frozenset):
        items = [shown(item) for item in (sorted(value) if isinstance(value, set | frozenset) else value)]
        return f"[{', '.join(items[:6])}{', …' if len(items) > 6 else ''}]"
    text = str(value)
    return text if len(text) <= 40 else text[:39] + "…"


def differences(plan: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """What a plan says differently from another one, by the last word of each path."""
    made = [f"{_last(path)}={shown(value)}" for path, value in plan.items() if (path, value) not in other.items()]
    gone = [f"{_last(path)} as the job has it" for path in other if path not in plan]
    return " ".join([*made, *gone])


def _last(path: str) -> str:
    return path.rpartition(".")[2]


def visible(text: str, most: int = 600) -> str:
    """A stranger's text on one line: no control characters, none that turn the direction of writing, cut when long."""
    line = " ".join(text.split())
    kept = "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in line)
    return kept if len(kept) <= most else kept[: most - 1] + "…"


def measured(path: str, value: Any) -> str:
    """As ``shown``, with a unit where the last word of the path says which."""
    spell = _SPELLED.get(path.rpartition(".")[2])
    return spell(value) if spell and isinstance(value, int | float) and value else shown(value)


_SPELLED: dict[str, Callable[[float], str]] = {
    "bandwidth": human_rate, "pcie_bandwidth": human_rate, "hbm_bandwidth": human_rate,
    "latency": human_seconds, "memory": human_bytes, "hbm_capacity": human_bytes,
}  # fmt: skip


def provenance_words(shares: object) -> str:
    """``measured 97.1 %, simulated 2.9 %``: the shares of a provenance that show."""
    spelled = [f"{name} {percent(share)}" for name, share in plain(shares).items() if share >= 0.0005]
    return ", ".join(spelled)


def bar(share: float, width: int) -> str:
    """``share`` of ``width`` cells in unicode eighths."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    full, rest = divmod(eighths, 8)
    return "█" * full + (_EIGHTHS[rest] if rest else "")
