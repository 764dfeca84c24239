"""Refits the constants on ground truth, source by source left out, and refuses those that do not help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from windtunnel.calibration.fit import (
    Evaluate,
    Fit,
    Floats,
    Free,
    Gain,
    Mask,
    Refitted,
    fit,
    gain,
    heard,
    linearise,
    moved,
    moved_by,
    moves,
    objective,
    paired,
    solve,
    without,
)
from windtunnel.calibration.intervals import ErrorTable, error_table
from windtunnel.catalog.constants import certificates
from windtunnel.records.refit import Runs, by_series, other_half


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """(Median, p90) of the sizes of ``n`` errors: in sample, left out, with scoped constants neutral."""

    n: int
    pairs: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Constants, and log errors of every run: with them, and with those fitted without the run's own source."""

    constants: tuple[Refitted, ...]
    runs: Runs
    in_sample: Floats
    left_out: Floats
    neutral_scoped: Floats
    """Errors with every scoped constant neutral."""

    @property
    def sets(self) -> tuple[Floats, Floats, Floats]:
        """Errors in sample, left out, and with scoped constants neutral."""
        return self.in_sample, self.left_out, self.neutral_scoped

    def rows(self) -> list[tuple[str, str, float, float, float]]:
        """Id, source and the errors of ``sets`` of every run."""
        return [
            (record.id, record.file, float(fitted), float(out), float(neutral))
            for record, fitted, out, neutral in zip(self.runs.records, *self.sets, strict=True)
        ]

    def summary(self) -> dict[str, Errors]:
        """Errors of all but vtrain together, and by source."""
        masks = {"all": ~self.runs.of("vtrain")} | {source: self.runs.of(source) for source in self.runs.sources}
        return {name: self._errors(mask) for name, mask in masks.items() if mask.any()}

    def _errors(self, mask: Mask) -> Errors:
        sizes = [np.abs(np.expm1(errors[mask])) for errors in self.sets]
        return Errors(n=int(mask.sum()), pairs=tuple((float(np.median(s)), float(np.quantile(s, 0.9))) for s in sizes))


NEARLY_ALL = 0.9
"""Share of what is known of a constant, its squared derivatives weighed, that makes it one source's own."""


def calibrate(
    runs: Runs, free: Sequence[Free], speaks_for: Mapping[str, Sequence[str]], evaluate: Evaluate
) -> Calibration:
    """Fit ``free`` on ``runs``. ``speaks_for``: sources that speak for some constants only.

    A constant of which nearly all is known from one source is scoped: it sees every second series of that source. One
    that seems not to help runs it has not seen, by derivatives, is set to neutral, the worst first, and the rest fitted
    again; it is refused unless left-out runs, evaluated, are better with it by more than a standard error.
    """
    start = linearise(evaluate, free, {c.name: c.start for c in free})
    unseen = _unseen(runs, free, speaks_for, start)
    best = fit(evaluate, free, runs.weights, unseen, start)
    neutral = _neutral(evaluate, best, free)
    kept, refused, proven = list(free), dict[str, float](), set[str]()
    helps = dict[str, Gain]()
    while True:
        helps |= {
            name: found for name, found in _helps(best, kept, neutral, runs, unseen).items() if name not in proven
        }
        failing = [c for c in kept if c.name not in proven and not helps[c.name].helps]
        if not failing:
            break
        worst = min(failing, key=lambda constant: helps[constant.name].pooled)
        fixed = _fixing(evaluate, {**refused, worst.name: worst.neutral})
        other, others, rest = _refusing(fixed, best, neutral, kept, worst, runs, unseen)
        with_it = _left_out(_fixing(evaluate, refused), best, kept, runs, unseen, speaks_for)
        without_it = _left_out(fixed, other, rest, runs, unseen, speaks_for)
        exact = paired(without_it, with_it, runs.weights, [runs.of(source) for source in runs.sources])
        if exact.helps:
            proven.add(worst.name)
            helps[worst.name] = exact
        else:
            refused[worst.name] = worst.neutral
            best, neutral, kept = other, others, rest
    evaluate = _fixing(evaluate, refused)
    best = fit(evaluate, kept, runs.weights, unseen, best)
    return _judged(runs, free, kept, unseen, best, helps, refused, evaluate, speaks_for)


def _left_out(
    evaluate: Evaluate, best: Fit, kept: Sequence[Free], runs: Runs, unseen: Mapping[str, Mask],
    speaks_for: Mapping[str, Sequence[str]],
) -> Floats:  # fmt: skip
    """Errors of every run with constants fitted without its source; of a source that speaks for some constants only,
    which has one that no other source moves, those of the fit: half of its runs are unseen."""
    groups = [runs.of(source) for source in runs.sources]
    refits = [without(best, kept, runs.weights, unseen, out) for out in groups]
    found = best.errors.copy()
    trials = list(zip(refits, groups, strict=True))
    for source, out, errors in zip(runs.sources, groups, evaluate(trials), strict=True):
        if source not in speaks_for:
            found[out] = errors[out]
    return found


def _neutral(evaluate: Evaluate, best: Fit, free: Sequence[Free]) -> dict[str, Floats]:
    """Errors of every run with each constant neutral and the others as fitted."""
    trials = [({**best.values, c.name: c.neutral}, moved_by(best, index)) for index, c in enumerate(free)]
    found = zip(free, evaluate(trials), strict=True)
    return {c.name: np.where(np.isnan(errors), best.errors, errors) for c, errors in found}


def _refusing(
    evaluate: Evaluate, best: Fit, neutral: Mapping[str, Floats], kept: Sequence[Free], worst: Free,
    runs: Runs, unseen: Mapping[str, Mask],
) -> tuple[Fit, dict[str, Floats], list[Free]]:  # fmt: skip
    """The rest fitted again without a constant: two steps with the derivatives there are, each evaluated exactly. What
    the others' neutral values do is taken to have changed by as much as the errors have."""
    rest = [constant for constant in kept if constant is not worst]
    jacobian = np.delete(best.jacobian, list(kept).index(worst), axis=1)
    found = Fit(values=best.values, errors=neutral[worst.name], jacobian=jacobian)
    for _ in range(2):
        values = moved(found.values, rest, solve(found, rest, runs.weights, unseen))
        (errors,) = evaluate([(values, None)])
        if objective(errors, runs.weights) >= objective(found.errors, runs.weights):
            break
        found = Fit(values=values, errors=errors, jacobian=jacobian)
    changed = found.errors - best.errors
    return found, {constant.name: neutral[constant.name] + changed for constant in rest}, rest


def free_constants() -> list[Free]:
    """The constants that calibration fits, from where they are."""
    return [
        Free(
            name=known.name,
            start=known.value,
            neutral=known.fitted.neutral,
            low=known.fitted.bounds[0],
            high=known.fitted.bounds[1],
        )
        for known in certificates()
        if known.fitted is not None
    ]


def comparable(found: Calibration) -> ErrorTable:
    """Left-out errors as log(measured / projected step time) by kind of job; a doubtful run, whose job may not be the
    one that ran, says nothing of them."""
    rows = zip(found.runs.records, found.left_out, found.runs.weights, strict=True)
    return error_table((record.job, float(error)) for record, error, weight in rows if weight > 0)


def _unseen(runs: Runs, free: Sequence[Free], speaks_for: Mapping[str, Sequence[str]], at: Fit) -> dict[str, Mask]:
    """Per constant the runs that may not speak for it."""
    unseen = {
        c.name: np.array([c.name not in speaks_for.get(record.file, (c.name,)) for record in runs.records])
        for c in free
    }
    speaks = heard(at, free, runs.weights, unseen)
    for index, constant in enumerate(free):
        relevant = speaks[:, index]
        owner = _owner(runs, at, index, relevant)
        if owner is not None:
            unseen[constant.name] |= other_half(runs, relevant & runs.of(owner)) | ~runs.of(owner)
    return unseen


def _helps(
    best: Fit, free: Sequence[Free], neutral: Mapping[str, Floats], runs: Runs, unseen: Mapping[str, Mask]
) -> dict[str, Gain]:
    """What each constant does to runs it has not seen: of sources left out, or for a scoped one of the other half of
    its source. ``neutral``: errors with each of them neutral."""
    groups = [runs.of(source) for source in runs.sources]
    speaks = heard(best, free, runs.weights, unseen)
    found = {}
    for index, constant in enumerate(free):
        name, errors = constant.name, neutral[constant.name]
        owner = _owner(runs, best, index, speaks[:, index])
        if owner is not None:
            other = np.where(runs.of(owner) & unseen[name] & moves(best, index), runs.weights, 0.0)
            found[name] = paired(errors, best.errors, other, by_series(runs, other > 0))
        else:
            found[name] = gain(best, free, index, errors, runs.weights, unseen, groups)
    return found


def _fixing(evaluate: Evaluate, fixed: Mapping[str, float]) -> Evaluate:
    return lambda trials: evaluate([({**fixed, **values}, only) for values, only in trials])


def _judged(
    runs: Runs, free: Sequence[Free], kept: Sequence[Free], unseen: Mapping[str, Mask], best: Fit,
    helps: Mapping[str, Gain], refused: Mapping[str, float], evaluate: Evaluate,
    speaks_for: Mapping[str, Sequence[str]],
) -> Calibration:  # fmt: skip
    """Left-out errors, and the certificate of every constant."""
    refits = [without(best, kept, runs.weights, unseen, runs.of(source)) for source in runs.sources]
    left_out = _left_out(evaluate, best, kept, runs, unseen, speaks_for)
    speaks = heard(best, kept, runs.weights, unseen)
    columns = {c.name: speaks[:, index] for index, c in enumerate(kept)}
    scoped = {}
    constants = []
    for constant in free:
        name = constant.name
        heard_by = columns.get(name, np.zeros(len(runs.records), dtype=bool))
        on = _sources(runs, heard_by)
        kind = "scoped" if len(on) == 1 else "global"
        if kind == "scoped":
            scoped[name] = constant.neutral
        spread = [refit[name] for refit in refits if name in refit]
        constants.append(
            Refitted(
                name=name,
                value=refused.get(name, best.values.get(name, constant.neutral)),
                kind=kind,
                on=on,
                records=int(heard_by.sum()),
                residual=float(np.median(np.abs(best.errors[heard_by]))) if heard_by.any() else 0.0,
                range=(min(spread), max(spread)) if spread else (constant.neutral, constant.neutral),
                helps=helps[name].pooled,
                error=helps[name].error,
                better=helps[name].better,
                worse=helps[name].worse,
                refused=name in refused,
            )
        )
    (neutral,) = evaluate([({**best.values, **scoped}, None)])
    return Calibration(
        constants=tuple(constants), runs=runs, in_sample=best.errors, left_out=left_out, neutral_scoped=neutral
    )


def _owner(runs: Runs, at: Fit, index: int, mask: Mask) -> str | None:
    """The source of nearly all that these runs say about a constant, if there is one; None where several speak."""
    says = np.where(mask, runs.weights * at.jacobian[:, index] ** 2, 0.0)
    whole = float(says.sum())
    return next((s for s in runs.sources if whole > 0 and float(says[runs.of(s)].sum()) >= NEARLY_ALL * whole), None)


def _sources(runs: Runs, mask: Mask) -> tuple[str, ...]:
    return tuple(dict.fromkeys(record.file for record, counts in zip(runs.records, mask, strict=True) if counts))
