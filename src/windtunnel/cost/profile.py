"""A profile: seconds measured on one device with one software, found by exact shape or interpolated along one size."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from windtunnel.errors import Fault, FormatError

VERSION = 1
"""Of the format; a file of another version is refused."""

BYTES, CALIBRATION = "bytes/", "calibration/"
"""Beginnings of the names of entries that hold bytes, or a ratio, where all others hold seconds."""

Shape = tuple[tuple[str, float], ...]
Pass = Literal["forward", "grad_input", "grad_weight", "backward", "step", "none"]


@dataclass(frozen=True, slots=True)
class Key:
    """What was timed: an op or unit by name, a pass, its sizes sorted by name, and the dtype it computes in."""

    op: str
    phase: Pass
    shape: Shape
    dtype: str


def key(op: str, phase: Pass, dtype: str, shape: Mapping[str, float]) -> Key:
    """The key of an op with these sizes."""
    return Key(op, phase, tuple(sorted((name, float(size)) for name, size in shape.items())), dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Median seconds of ``repeats`` executions, their 10th and 90th percentile, and what was unusual about them.

    By its name an entry holds bytes or a ratio in place of seconds.
    """

    key: Key
    seconds: float
    low: float
    high: float
    repeats: int
    remarks: tuple[str, ...] = ()

    @property
    def spread(self) -> float:
        """Half the distance of the percentiles, relative to the median."""
        return (self.high - self.low) / 2 / self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Entries by key, and where they come from. Compared by identity: a profile is large and never copied."""

    device: tuple[tuple[str, str | float], ...]
    software: tuple[tuple[str, str], ...]
    method: tuple[tuple[str, str | float], ...]
    entries: tuple[Entry, ...]

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    @property
    def device_name(self) -> str:
        return str(dict(self.device).get("name", "unknown"))

    def find(self, wanted: Key) -> Entry | None:
        """The entry of exactly this key."""
        return _index(self)[0].get(wanted)

    def estimate(self, wanted: Key) -> Estimate | None:
        """Seconds at a key: measured there, else interpolated between neighbours that differ in one size, else None."""
        found = self.find(wanted)
        if found is not None:
            return Estimate(found.seconds, found.spread, "measured")
        lines = _index(self)[1]
        guesses = [guess for name, _ in wanted.shape if (guess := _along(lines, wanted, name)) is not None]
        return min(guesses, key=lambda guess: guess.error, default=None)


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds, their relative error (half-width), and whether they were measured at this very shape."""

    seconds: float
    error: float
    evidence: Literal["measured", "interpolated"]


_Line = tuple[tuple[float, ...], tuple[Entry, ...]]


@lru_cache(maxsize=16)
def _index(profile: Profile) -> tuple[dict[Key, Entry], dict[tuple[Key, str], _Line]]:
    """Entries by key; and for every size, the entries that differ in it alone, in order of that size."""
    exact = {entry.key: entry for entry in profile.entries}
    rows: dict[tuple[Key, str], list[tuple[float, Entry]]] = defaultdict(list)
    for entry in exact.values():
        for name, size in entry.key.shape:
            rows[_without(entry.key, name), name].append((size, entry))
    lines = {}
    for place, row in rows.items():
        row.sort(key=lambda item: item[0])
        lines[place] = (tuple(size for size, _ in row), monotone(tuple(entry for _, entry in row)))
    return exact, lines


def _without(wanted: Key, name: str) -> Key:
    return replace(wanted, shape=tuple(pair for pair in wanted.shape if pair[0] != name))


def _along(lines: Mapping[tuple[Key, str], _Line], wanted: Key, name: str) -> Estimate | None:
    """An interpolation in one size, None outside of what was measured."""
    line = lines.get((_without(wanted, name), name))
    if line is None:
        return None
    sizes, entries = line
    size = dict(wanted.shape)[name]
    right = bisect_left(sizes, size)
    if right in (0, len(sizes)):
        return None
    return interpolate(size, (sizes[right - 1], entries[right - 1]), (sizes[right], entries[right]))


LAWS = (0.5, 1.0, 2.0)
"""Exponents q of the laws a + b·n^q an interpolation allows for: rising efficiency, constant rate, square."""


def interpolate(size: float, left: tuple[float, Entry], right: tuple[float, Entry]) -> Estimate:
    """Seconds between two measured sizes: linear, with an error that covers every law a + b·n^q, 1/2 ≤ q ≤ 2, through
    both, and the larger of their spreads."""
    (n0, first), (n1, last) = left, right
    chords = []
    for q in LAWS:
        share = (size**q - n0**q) / (n1**q - n0**q)
        chords.append(first.seconds + share * (last.seconds - first.seconds))
    middle = chords[1]
    curvature = max(abs(chord - middle) for chord in chords) / middle
    return Estimate(middle, curvature + max(first.spread, last.spread), "interpolated")


def monotone(entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """Entries in order of size with seconds that never fall: neighbours that do are pooled to their mean (isotonic)."""
    pools: list[tuple[float, int]] = []
    for entry in entries:
        pools.append((entry.seconds, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (a, n), (b, m) = pools.pop(-2), pools.pop()
            pools.append(((a * n + b * m) / (n + m), n + m))
    levels = [seconds for seconds, count in pools for _ in range(count)]
    return tuple(replace(entry, seconds=level) for entry, level in zip(entries, levels, strict=True))


def merge(old: Profile, new: Profile) -> Profile:
    """One profile of both; where both measured a key the newer entry stays, never an average.

    Raises FormatError where device or software differ: their seconds do not belong in one profile.
    """
    faults = [
        Fault(f"profile.{name}", str(b), f"the other profile has {a}", "merge profiles of one device and one software")
        for name, a, b in (("device.name", old.device_name, new.device_name), ("software", old.software, new.software))
        if a != b
    ]
    if faults:
        raise FormatError(faults)
    entries = {entry.key: entry for entry in (*old.entries, *new.entries)}
    return replace(new, entries=tuple(entries.values()))


@dataclass(frozen=True, slots=True)
class Change:
    """A key in two profiles; None where one of them lacks it."""

    key: Key
    old: float | None
    new: float | None

    @property
    def ratio(self) -> float | None:
        return None if self.old is None or self.new is None else self.new / self.old


def diff(old: Profile, new: Profile) -> tuple[Change, ...]:
    """Every key of either profile, largest change first, then what only one of them has."""
    before, after = ({entry.key: entry.seconds for entry in profile.entries} for profile in (old, new))
    changes = [Change(key, before.get(key), after.get(key)) for key in {**before, **after}]
    return tuple(sorted(changes, key=lambda change: -abs((change.ratio or 1.0) - 1)))
