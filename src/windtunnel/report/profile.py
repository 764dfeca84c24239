"""What a profile holds: where it comes from, how much of what, how well, and the ratios it has found."""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from windtunnel.cost.profile import CALIBRATION, Entry, Profile
from windtunnel.report.figures import number, percent
from windtunnel.report.measuring import amount
from windtunnel.report.tables import table


def profile_document(profile: Profile) -> dict[str, Any]:
    """``profile show --json``."""
    return {
        "device": dict(profile.device),
        "software": dict(profile.software),
        "method": dict(profile.method),
        "ops": [
            {
                "op": op,
                "entries": len(entries),
                "least": min(entry.seconds for entry in entries),
                "greatest": max(entry.seconds for entry in entries),
                "spread": median(entry.spread for entry in entries),
                "remarked": sum(bool(entry.remarks) for entry in entries),
            }
            for op, entries in _by_op(profile).items()
        ],
        "ratios": {
            entry.key.op.removeprefix(CALIBRATION): {"value": entry.seconds, "spread": [entry.low, entry.high]}
            for entry in profile.entries
            if entry.key.op.startswith(CALIBRATION)
        },
    }


def profile_text(profile: Profile) -> RenderableType:
    """Device, software and method; a line for every op; the ratios with their spread."""
    heads = [
        Text.assemble((f"{name:<10}", "bold"), ", ".join(f"{key} {_word(value)}" for key, value in values))
        for name, values in (("Device", profile.device), ("Software", profile.software), ("Method", profile.method))
    ]
    rows = [
        (
            op, str(len(entries)), amount(entries[0].key, min(entry.seconds for entry in entries)),
            amount(entries[0].key, max(entry.seconds for entry in entries)),
            percent(median(entry.spread for entry in entries)), str(sum(bool(entry.remarks) for entry in entries)),
        )
        for op, entries in _by_op(profile).items()
    ]  # fmt: skip
    ratios = [
        (entry.key.op.removeprefix(CALIBRATION), f"{entry.seconds:.3f}", f"{entry.low:.3f} to {entry.high:.3f}")
        for entry in profile.entries
        if entry.key.op.startswith(CALIBRATION)
    ]
    found = table(("op", "entries", "least", "greatest", "spread", "with remarks"), rows, title="Measured")
    return Group(*heads, Text(), found, *([table(("ratio", "value", "spread"), ratios)] if ratios else []))


def _by_op(profile: Profile) -> dict[str, list[Entry]]:
    found: dict[str, list[Entry]] = defaultdict(list)
    for entry in profile.entries:
        if not entry.key.op.startswith(CALIBRATION):
            found[entry.key.op].append(entry)
    return dict(sorted(found.items()))


def _word(value: str | float) -> str:
    return value if isinstance(value, str) else number(value)
