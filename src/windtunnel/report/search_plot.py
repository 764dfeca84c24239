"""A search drawn as SVG: every call in order, the best so far, what failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape

from windtunnel.search.trial import FREE, Trial

WIDTH, HEIGHT = 800, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 40, 50
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito's, which colour-blind readers tell apart."""


def search_svg(trials: Sequence[Trial]) -> str:
    """Step time over calls: a dot per plan that ran, a cross at the top per plan that did not, a line for the best."""
    calls = [trial for trial in trials if trial.outcome.status not in FREE]
    ran = [trial.outcome.step_time for trial in calls if trial.outcome.step_time]
    low, high = (min(ran), max(ran)) if ran else (0.0, 1.0)
    high = min(high, 3 * low) if ran else high
    span = (high - low) or 1.0

    def x(index: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (index + 0.5) / max(1, len(calls))

    def y(seconds: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - min(seconds, high)) / span

    names = list(dict.fromkeys(trial.proposer for trial in calls))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        f'font-size="12"><rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        *_axes(low, high),
        *(_mark(trial, x(i), y, COLORS[names.index(trial.proposer) % len(COLORS)]) for i, trial in enumerate(calls)),
        *_best(calls, x, y),
        *_legend(names),
        "</svg>\n",
    ]
    return "\n".join(parts)


def _axes(low: float, high: float) -> Iterator[str]:
    bottom = HEIGHT - BOTTOM
    yield f'<path d="M{LEFT} {TOP} V{bottom} H{WIDTH - RIGHT}" fill="none" stroke="#888"/>'
    for share in (0.0, 0.5, 1.0):
        at = TOP + (bottom - TOP) * (1 - share)
        yield f'<text x="{LEFT - 8}" y="{at + 4:.0f}" text-anchor="end">{low + share * (high - low):.4g} s</text>'
    yield f'<text x="{WIDTH / 2:.0f}" y="{HEIGHT - 12}" text-anchor="middle">calls of the oracle</text>'


def _mark(trial: Trial, x: float, y: Callable[[float], float], color: str) -> str:
    title = f"<title>{escape(f'{trial.number} {trial.proposer}: {trial.reason} {trial.outcome.why}')}</title>"
    seconds = trial.outcome.step_time
    if seconds is None:
        path = f"M{x - 4:.1f} {TOP - 12} l8 8 m0 -8 l-8 8"
        return f'<path d="{path}" stroke="{color}" stroke-width="2" fill="none">{title}</path>'
    return f'<circle cx="{x:.1f}" cy="{y(seconds):.1f}" r="4" fill="{color}" fill-opacity="0.7">{title}</circle>'


def _best(calls: Sequence[Trial], x: Callable[[int], float], y: Callable[[float], float]) -> Iterator[str]:
    points, best = list[str](), float("inf")
    for index, trial in enumerate(calls):
        if trial.outcome.step_time is not None and trial.outcome.step_time < best:
            if points:
                points.append(f"{x(index):.1f},{y(best):.1f}")
            best = trial.outcome.step_time
            points.append(f"{x(index):.1f},{y(best):.1f}")
    if points:
        points.append(f"{x(len(calls) - 1):.1f},{y(best):.1f}")
        yield f'<polyline points="{" ".join(points)}" fill="none" stroke="#333" stroke-width="1.5"/>'


def _legend(names: Sequence[str]) -> Iterator[str]:
    for index, name in enumerate(names):
        at = LEFT + 120 * index
        yield f'<circle cx="{at + 6}" cy="14" r="5" fill="{COLORS[index % len(COLORS)]}"/>'
        yield f'<text x="{at + 16}" y="18">{escape(name)}</text>'
