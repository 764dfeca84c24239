"""A menu for models too small for tools: moves around the best plan, one of which is picked by a fixed schema."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest
from typing import Any

from windtunnel.agent.bench import Bench
from windtunnel.errors import Fault, FormatError, WindtunnelError
from windtunnel.projection.choices import Changes
from windtunnel.search.moves import Moves

Menu = Mapping[str, Changes]
"""What is offered, by the words it is offered in."""
MOST = 16
REASONS = (
    "smaller bubble", "less communication", "less recomputation", "larger matrix products", "better overlap",
    "less memory", "to learn what it does",
)  # fmt: skip
EXPECTED = (-20, -10, -5, -2, 0, 5)
"""Changes of step time to choose from, in percent."""


def menu(bench: Bench) -> Menu:
    """Legal, fitting plans one move from the best that no trial had, alternating between axes."""
    best = bench.best
    at = {} if best is None else best.changes
    moves = Moves(bench.job, bench.space)
    tried = {None, *(bench.key(trial.changes) for trial in bench.trials)}
    rows = [
        [
            (f"{axis.path} {value}", changes)
            for value in axis.values
            if value != moves.value(at, axis.path)
            and (changes := moves.moved(at, {axis.path: value})) is not None
            and bench.key(changes) not in tried
        ]
        for axis in moves.axes
    ]
    found: dict[str, Changes] = {}
    for turn in zip_longest(*rows):
        for words, changes in filter(None, turn):
            if len(found) < MOST and _fits(bench, changes):
                found[words] = bench.proposal(changes)
    return found


def _fits(bench: Bench, changes: Changes) -> bool:
    try:
        return bench.refusal(changes) is None and bench.project(changes).memory.verdict == "fits"
    except WindtunnelError:
        return False


def schema_of_menu(offered: Menu) -> dict[str, Any]:
    """Enumerations only: a grammar leaves a small model nothing to get lost in."""
    return {
        "type": "object",
        "properties": {
            "move": {"type": "string", "enum": list(offered)},
            "because": {"type": "string", "enum": list(REASONS)},
            "percent": {"type": "integer", "enum": list(EXPECTED)},
        },
        "required": ["move", "because", "percent"],
        "additionalProperties": False,
    }


def chosen(picked: object, offered: Menu) -> tuple[Changes, str, float]:
    """The plan picked, the reason and the expected change. Raises FormatError for anything that was not offered."""
    if not isinstance(picked, Mapping) or picked.get("move") not in offered:
        raise FormatError(Fault("move", "", "is not on the menu", f"pick one of: {'; '.join(offered)}"))
    if picked.get("because") not in REASONS or picked.get("percent") not in EXPECTED:
        raise FormatError(Fault("because, percent", "", "are not on the menu", f"{REASONS}; {EXPECTED}"))
    move = str(picked["move"])
    return offered[move], f"{move}: {picked['because']}", float(picked["percent"]) / 100
