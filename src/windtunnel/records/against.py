"""One table of accuracy against an earlier one: what became worse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

SLACK = 0.002
"""A change of a group that is noise: the same large run measured twice differs by as much."""
MOVED = 0.005
"""A change of a record's error that is worth a line."""

_SMALLER_IS_BETTER = ("mape", "median", "p90")
_LARGER_IS_BETTER = ("within_bar",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """A figure that became worse: where it stands in ``validate --json``, before and after."""

    figure: str
    before: float
    after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A record whose error changed; None where it was, or is, not compared."""

    id: str
    quantity: str
    before: float | None
    after: float | None


def moves(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Move, ...]:
    """Records of both documents of ``validate --json`` whose error changed, the largest change first."""
    earlier = {(row["id"], row["quantity"]): row["error"] for row in before["records"]}
    found = [
        Move(id=row["id"], quantity=row["quantity"], before=old, after=row["error"])
        for row in after["records"]
        if (old := earlier.get((row["id"], row["quantity"]), row["error"])) != row["error"]
    ]
    return tuple(sorted((move for move in found if _size(move) > MOVED), key=_size, reverse=True))


def _size(move: Move) -> float:
    if move.before is None or move.after is None:
        return float("inf")
    return abs(move.after - move.before)


def regressions(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Regression, ...]:
    """What is worse in ``after``, of what both documents of ``validate --json`` hold."""
    return (*_groups(before["groups"], after["groups"]), *_series(before, after), *_fits(before, after))


def _groups(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Regression]:
    for quantity in before.keys() & after.keys():
        for name in sorted(before[quantity].keys() & after[quantity].keys()):
            where = f"groups.{quantity}.{name}"
            old, new = before[quantity][name], after[quantity][name]
            yield from _worse(where, old, new, _SMALLER_IS_BETTER, sign=1)
            yield from _worse(where, old, new, _LARGER_IS_BETTER, sign=-1)


def _series(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Regression]:
    for name in sorted(before["series"].keys() & after["series"].keys()):
        old, new = before["series"][name], after["series"][name]
        yield from _worse(f"series.{name}", old, new, ("ordered",), sign=-1)
        yield from _worse(f"series.{name}", old, new, ("regret",), sign=1)


def _fits(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Regression]:
    yield from _worse("fits", before["fits"], after["fits"], ("false_oom", "missed_oom"), sign=1)


def _worse(
    where: str, old: Mapping[str, Any], new: Mapping[str, Any], names: tuple[str, ...], *, sign: int
) -> Iterator[Regression]:
    for name in names:
        before, after = old.get(name), new.get(name)
        if before is not None and after is not None and sign * (after - before) > SLACK:
            yield Regression(figure=f"{where}.{name}", before=before, after=after)
