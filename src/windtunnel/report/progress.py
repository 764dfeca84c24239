"""A study while it runs: a screen of the state it is in, and its news as lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import inf

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from windtunnel.report.figures import signed_percent, visible
from windtunnel.search.study import Study
from windtunnel.search.trial import FREE, Trial
from windtunnel.units import human_bytes, human_seconds

WIDTH = 72
"""Columns of the plot."""
_LEVELS = "▁▂▃▄▅▆▇█"
_NOTHING = "·"


def study_screen(study: Study, elapsed: float, limit: float) -> RenderableType:
    """The best plan, what is spent, who proposed what, the search as a line of bars, and the last trial.

    ``elapsed`` and ``limit`` are in seconds of wall time.
    """
    grid = Table.grid(padding=(0, 2), expand=True)
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="ellipsis", no_wrap=True, ratio=1)
    rows = [
        ("best", _best(study)),
        ("spent", _spent(study, elapsed, limit)),
        *((name, line) for name, line in _proposers(study)),
        ("search", search_bars(study.trials)),
        ("last", _last(study.trials[-1]) if study.trials else "nothing yet"),
    ]
    for name, line in rows:
        grid.add_row(Text(visible(name, 16)), Text(visible(line)))
    return grid


def _best(study: Study) -> str:
    best = study.best
    if best is None or best.outcome.step_time is None:
        return "no plan has run"
    return f"{human_seconds(best.outcome.step_time)}{_gain(study, best)} | trial {best.number}, {_why(best)}"


def _gain(study: Study, best: Trial) -> str:
    """Over the baseline, where that was tried and ran."""
    first = next((trial for trial in study.trials[:1] if not trial.changes and trial.values), None)
    before, after = (None if trial is None else trial.outcome.step_time for trial in (first, best))
    return f", {signed_percent(before / after - 1)} over the baseline" if before and after else ""


def _spent(study: Study, elapsed: float, limit: float) -> str:
    calls = f"{study.calls:,} calls" + (f" of {study.most_calls:,.0f}" if study.most_calls < inf else "")
    reused = f", {study.reused:,} known before" if study.reused else ""
    time = human_seconds(elapsed) + (f" of {human_seconds(limit)}" if limit < inf else "")
    return f"{calls}{reused} | {len(study.trials):,} proposals, {_free(study.trials):,} refused at no cost | {time}"


def _free(trials: Sequence[Trial]) -> int:
    return sum(trial.outcome.status in FREE for trial in trials)


def _proposers(study: Study) -> list[tuple[str, str]]:
    """A line for each proposer that has had its turn."""
    lines = []
    for name in dict.fromkeys(trial.proposer for trial in study.trials):
        own = [trial for trial in study.trials if trial.proposer == name]
        best = min((trial.outcome.step_time for trial in own if trial.outcome.step_time), default=None)
        tried = len(own) - _free(own)
        failed = Counter(trial.outcome.status for trial in own if trial.outcome.status not in ("ok", *FREE))
        told = [f"{tried:,} tried", *(f"{count:,} {status}" for status, count in failed.items())]
        lines.append((name, ", ".join([*told, f"best {human_seconds(best)}" if best else "none ran"])))
    return lines


def _last(trial: Trial) -> str:
    return f"{trial.number} {_why(trial)} → {outcome_text(trial)}"


def _why(trial: Trial) -> str:
    return visible(f"{trial.proposer}: {trial.reason}", 90)


def outcome_text(trial: Trial) -> str:
    """What became of a trial, in a few words."""
    outcome = trial.outcome
    if outcome.step_time is None:
        return visible(f"{outcome.status}: {outcome.why}", 70)
    peak = "" if outcome.peak_device is None else f", {human_bytes(outcome.peak_device)}"
    return f"{human_seconds(outcome.step_time)}{peak}"


def search_bars(trials: Sequence[Trial], width: int = WIDTH) -> str:
    """The calls in order, in at most ``width`` bars: the best step time of each, on a scale from the best of all (the
    lowest bar) to twice that; a dot where nothing ran."""
    calls = [trial.outcome.step_time for trial in trials if trial.outcome.status not in FREE]
    ran = [seconds for seconds in calls if seconds]
    if not ran:
        return _NOTHING * min(len(calls), width)
    bars, lowest = min(width, len(calls)), min(ran)
    drawn = []
    for bar in range(bars):
        some = [seconds for seconds in calls[bar * len(calls) // bars : (bar + 1) * len(calls) // bars] if seconds]
        level = min(7, int(8 * (min(some) / lowest - 1))) if some else 0
        drawn.append(_LEVELS[level] if some else _NOTHING)
    return "".join(drawn)


def news_line(study: Study, elapsed: float) -> str:
    """The state of a study as one line of a log."""
    last = f" | {_last(study.trials[-1])}" if study.trials else ""
    return visible(f"[{human_seconds(elapsed)}] {study.calls:,} calls, best {_best(study)}{last}", 240)
