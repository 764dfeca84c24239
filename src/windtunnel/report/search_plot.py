"""A search drawn: every call in order, the best so far, what failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from windtunnel.report.drawing import Dot, Drawing, Line, Mark, Word
from windtunnel.report.figures import visible
from windtunnel.search.trial import FREE, Trial

WIDTH, HEIGHT = 800, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 40, 50
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito's, which colour-blind readers tell apart."""
SLOWEST = 3.0
"""Times the best step; what is slower is drawn at the top."""


def search_plot(trials: Sequence[Trial]) -> Drawing:
    """Step time over calls: a dot per plan that ran, a cross at the top per plan that did not, a line for the best."""
    calls = [trial for trial in trials if trial.outcome.status not in FREE]
    ran = [trial.outcome.step_time for trial in calls if trial.outcome.step_time]
    low, high = (min(ran), min(max(ran), SLOWEST * min(ran))) if ran else (0.0, 1.0)
    span = (high - low) or 1.0

    def x(index: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (index + 0.5) / max(1, len(calls))

    def y(seconds: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - min(seconds, high)) / span

    names = list(dict.fromkeys(trial.proposer for trial in calls))
    marks = [
        *_axes(low, high),
        *(_mark(trial, x(i), y, COLORS[names.index(trial.proposer) % len(COLORS)]) for i, trial in enumerate(calls)),
        *_best(calls, x, y),
        *_legend(names),
    ]
    label = f"step time over {len(calls)} calls; the best is {low:.4g} s" if ran else "no plan ran"
    return Drawing(width=WIDTH, height=HEIGHT, marks=marks, label=label)


def _axes(low: float, high: float) -> Iterator[Mark]:
    bottom = HEIGHT - BOTTOM
    yield Line(points=[(LEFT, TOP), (LEFT, bottom), (WIDTH - RIGHT, bottom)], color="#888888")
    for share in (0.0, 0.5, 1.0):
        at = TOP + (bottom - TOP) * (1 - share)
        yield Word(at=(LEFT - 8, at + 4), text=f"{low + share * (high - low):.4g} s", anchor="end")
    yield Word(at=(WIDTH / 2, HEIGHT - 12), text="calls of the oracle", anchor="middle")


def _mark(trial: Trial, x: float, y: Callable[[float], float], color: str) -> Mark:
    says = f"{trial.number} {trial.proposer}: {trial.reason} {trial.outcome.why}"
    seconds = trial.outcome.step_time
    if seconds is not None:
        return Dot(at=(x, y(seconds)), color=color, says=says)
    top = TOP - 12
    cross = [(x - 4, top), (x + 4, top + 8), (x, top + 4), (x + 4, top), (x - 4, top + 8)]
    return Line(points=cross, color=color, width=2, says=says)


def _best(calls: Sequence[Trial], x: Callable[[int], float], y: Callable[[float], float]) -> Iterator[Mark]:
    points, best = list[tuple[float, float]](), float("inf")
    for index, trial in enumerate(calls):
        if trial.outcome.step_time is not None and trial.outcome.step_time < best:
            if points:
                points.append((x(index), y(best)))
            best = trial.outcome.step_time
            points.append((x(index), y(best)))
    if points:
        points.append((x(len(calls) - 1), y(best)))
        yield Line(points=points, color="#333333", width=1.5)


def _legend(names: Sequence[str]) -> Iterator[Mark]:
    for index, name in enumerate(names):
        at = LEFT + 120 * index
        yield Dot(at=(at + 6, 14), color=COLORS[index % len(COLORS)], radius=5)
        yield Word(at=(at + 16, 18), text=visible(name, 16))
