"""What trials have shown about a guess: a factor for each value of each axis, shrunk towards one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp, log, sqrt

from windtunnel.search.rates import Belief

Features = tuple[int, ...]
"""The values of a plan, as numbers that ``Corrections.features`` gives out."""

ROUNDS = 12
"""Passes over the effects; each is the mean of what the others leave unexplained."""


@dataclass(slots=True)
class Corrections:
    """Additive effects on the logarithm of measured over guessed seconds (ridge regression by backfitting)."""

    belief: Belief
    _numbers: dict[tuple[str, str], int] = field(default_factory=dict)
    _seen: list[tuple[Features, float]] = field(default_factory=list)
    _effects: dict[int, float] = field(default_factory=dict)
    _mean: float = 0.0
    _counts: dict[int, int] = field(default_factory=dict)
    _stale: bool = False

    def features(self, values: Sequence[tuple[str, object]]) -> Features:
        """A number for each path and value, the same for the same."""
        return tuple(self._numbers.setdefault((path, repr(value)), len(self._numbers)) for path, value in values)

    def learn(self, features: Features, guessed: float, measured: float) -> None:
        self._seen.append((features, log(measured / guessed)))
        self._stale = True

    def __len__(self) -> int:
        return len(self._seen)

    def factor(self, features: Features) -> float:
        """Measured over guessed seconds, as far as it is known."""
        if self._stale:
            self._fit()
        return exp(self._mean + sum(self._effects.get(number, 0.0) for number in features))

    def hope(self, features: Features) -> float:
        """The factor as good as it may well be: values that were seldom tried may help."""
        doubt = sum(1 / (1 + self._counts.get(number, 0) / self.belief.weight) for number in features)
        return self.factor(features) * exp(-self.belief.reach * sqrt(doubt))

    def _fit(self) -> None:
        self._stale = False
        found: dict[int, list[int]] = {}
        for index, (features, _) in enumerate(self._seen):
            for number in features:
                found.setdefault(number, []).append(index)
        self._effects = dict.fromkeys(found, 0.0)
        self._counts = {number: len(rows) for number, rows in found.items()}
        self._mean = sum(ratio for _, ratio in self._seen) / len(self._seen)
        left = [ratio - self._mean for _, ratio in self._seen]
        for _ in range(ROUNDS):
            for number, rows in found.items():
                old = self._effects[number]
                new = sum(left[row] + old for row in rows) / (len(rows) + self.belief.weight)
                self._effects[number] = new
                for row in rows:
                    left[row] += old - new
            shift = sum(left) / len(left)
            self._mean += shift
            left = [ratio - shift for ratio in left]
