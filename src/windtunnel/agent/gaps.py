"""How far trials are from the model, told apart by the values of the axes: what an oracle knows that the model does
not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, log, sqrt
from typing import Any

import numpy as np

from windtunnel.agent import views
from windtunnel.agent.bench import Bench
from windtunnel.errors import WindtunnelError
from windtunnel.search.moves import Moves
from windtunnel.search.space import EVEN, LAYOUT

SPREAD = 0.05
"""Guess of the spread of one value's effect on the logarithm of the step time; it says how much one trial proves."""
NOISE = 0.005
"""Guess of the same of a repeated run."""
COMMON = 1.0
"""What may be common to all trials: nothing is known of it beforehand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """Logarithms of measured over projected seconds: common to all trials, and what each value of an axis adds.

    Effects are estimated together, by least squares drawn towards none (ridge), so that one value does not get what
    another caused.
    """

    common: float
    effects: Mapping[tuple[str, str], float]
    trials: Mapping[tuple[str, str], int]
    seen: frozenset[tuple[str, str]]
    count: int
    moves: Moves
    doubt: float = SPREAD
    """What a value that no trial had may still add: nothing where the model itself is the oracle."""

    def factor(self, changes: Mapping[str, Any]) -> float:
        """What the trials say a plan takes, over what the model says."""
        values = (key_of(self.moves, changes, axis.path) for axis in self.moves.axes)
        return exp(self.common + sum(self.effects.get(key, 0.0) for key in values))

    def promise(self, changes: Mapping[str, Any]) -> float:
        """The same one standard deviation lower: values that no trial had may yet turn out well."""
        values = (key_of(self.moves, changes, axis.path) for axis in self.moves.axes)
        unproven = sum(key not in self.seen for key in values) if self.count else 0
        return self.factor(changes) * exp(-self.doubt * sqrt(unproven))

    @property
    def document(self) -> dict[str, Any]:
        rows = [
            {"path": path, "value": value, "trials": self.trials[path, value], "effect": views.percent(exp(effect) - 1)}
            for (path, value), effect in sorted(self.effects.items(), key=lambda item: -abs(item[1]))
        ]
        return {"measured_over_model": views.percent(exp(self.common) - 1), "of_trials": self.count, "gaps": rows[:40]}


def key_of(moves: Moves, changes: Mapping[str, Any], path: str) -> tuple[str, str]:
    value = moves.value(changes, path)
    return path, repr(value if path != LAYOUT or value == EVEN else "uneven")


def gaps(bench: Bench) -> Gaps:
    """The trials that ran, against the model. Values that every trial has tell nothing and are left out."""
    moves = Moves(bench.job, bench.space)
    logs, rows = list[float](), list[list[tuple[str, str]]]()
    for trial in bench.trials:
        if trial.outcome.status == "ok" and trial.outcome.step_time and trial.values:
            try:
                logs.append(log(trial.outcome.step_time / bench.project(trial.changes).step_time))
            except WindtunnelError:
                continue
            rows.append([key_of(moves, trial.changes, axis.path) for axis in moves.axes])
    counts: dict[tuple[str, str], int] = {}
    for row in rows:
        for key in row:
            counts[key] = counts.get(key, 0) + 1
    names = [key for key, count in counts.items() if count < len(rows)]
    common, effects = _estimated(logs, rows, names)
    return Gaps(
        common=common,
        effects=effects,
        trials={key: counts[key] for key in names},
        seen=frozenset(counts),
        count=len(rows),
        moves=moves,
        doubt=0.0 if bench.simulated else SPREAD,
    )


def _estimated(
    logs: list[float], rows: list[list[tuple[str, str]]], names: list[tuple[str, str]]
) -> tuple[float, dict[tuple[str, str], float]]:
    """Posterior means of a linear model with independent normal effects."""
    if not rows:
        return 0.0, {}
    columns = {name: index for index, name in enumerate(names, start=1)}
    design = np.zeros((len(rows), len(names) + 1))
    design[:, 0] = 1.0
    for index, row in enumerate(rows):
        for key in row:
            if key in columns:
                design[index, columns[key]] = 1.0
    prior = np.full(len(names) + 1, SPREAD**2)
    prior[0] = COMMON**2
    weighted = design * prior
    solved = np.linalg.solve(weighted @ design.T + NOISE**2 * np.eye(len(rows)), np.array(logs))
    found = weighted.T @ solved
    return float(found[0]), {name: float(found[index]) for name, index in columns.items()}
