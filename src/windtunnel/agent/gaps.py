"""How far trials are from the model, told apart by the values of the axes: what an oracle knows that the model does
not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windtunnel.agent import views
from windtunnel.agent.bench import Bench
from windtunnel.catalog.rates import rates
from windtunnel.errors import WindtunnelError
from windtunnel.search.corrected import Corrections, Features
from windtunnel.search.moves import Moves
from windtunnel.search.space import EVEN, LAYOUT

Key = tuple[str, str]
"""A path and its value, as text."""
SHOWN = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """What trials have corrected. ``trials`` counts those with each value; where the model is the oracle (``exact``)
    nothing else may be hoped for."""

    corrections: Corrections
    trials: Mapping[Key, int]
    moves: Moves
    exact: bool

    def factor(self, changes: Mapping[str, Any]) -> float:
        """What a plan takes as far as trials have shown, over what the model says."""
        return self.corrections.factor(self._features(changes))

    def promise(self, changes: Mapping[str, Any]) -> float:
        """The same as good as it may well be: values that were seldom tried may help."""
        return self.factor(changes) if self.exact else self.corrections.hope(self._features(changes))

    @property
    def document(self) -> dict[str, Any]:
        """The largest effects, of values that some trials had and others had not."""
        common, count = self.corrections.factor(()), len(self.corrections)
        effects = {key: self._effect(key) / common - 1 for key, number in self.trials.items() if number < count}
        rows = [
            {"path": path, "value": value, "trials": self.trials[path, value], "effect": views.percent(effect)}
            for (path, value), effect in sorted(effects.items(), key=lambda item: -abs(item[1]))
        ]
        return {"measured_over_model": views.percent(common - 1), "of_trials": count, "gaps": rows[:SHOWN]}

    def _effect(self, key: Key) -> float:
        return self.corrections.factor(self.corrections.features([key]))

    def _features(self, changes: Mapping[str, Any]) -> Features:
        return self.corrections.features(_keys(self.moves, changes))


def _keys(moves: Moves, changes: Mapping[str, Any]) -> list[Key]:
    """The plan's value on each axis; layouts count as even or not."""
    values = {axis.path: moves.value(changes, axis.path) for axis in moves.axes}
    if values.get(LAYOUT, EVEN) != EVEN:
        values[LAYOUT] = "uneven"
    return [(path, repr(value)) for path, value in values.items()]


def gaps(bench: Bench) -> Gaps:
    """The trials that ran, against the model."""
    moves, corrections, counts = Moves(bench.job, bench.space), Corrections(rates().belief), Counter[Key]()
    for trial in bench.trials:
        if trial.outcome.status == "ok" and trial.outcome.step_time and trial.values:
            try:
                projected = bench.project(trial.changes).step_time
            except WindtunnelError:
                continue
            keys = _keys(moves, trial.changes)
            corrections.learn(corrections.features(keys), projected, trial.outcome.step_time)
            counts.update(keys)
    return Gaps(corrections=corrections, trials=counts, moves=moves, exact=bench.simulated)
