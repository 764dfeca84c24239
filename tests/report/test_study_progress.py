"""What is shown while a study runs."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from windtunnel.report.progress import news_line, search_bars, study_screen
from windtunnel.search.trial import Outcome, Trial


def trial(number: int, step: float | None, proposer: str = "seed", **more: Any) -> Trial:
    status = more.pop("status", "ok" if step else "crashed")
    return Trial(
        number=number,
        proposer=proposer,
        reason=more.pop("reason", "because"),
        changes={} if number == 0 else {"plan.parallel.tp": number},
        outcome=Outcome(status=status, step_time=step, peak_device=2**30 if step else None, why=more.pop("why", "")),
        values=(step,) if step else (),
    )


def study(*trials: Trial, calls: float = inf) -> Any:
    tried = [item for item in trials if item.outcome.status != "illegal"]
    best = min((item for item in trials if item.values), key=lambda item: item.rank, default=None)
    return SimpleNamespace(trials=list(trials), calls=len(tried), reused=0, most_calls=calls, best=best)


def drawn(state: Any, limit: float = inf) -> list[str]:
    console = Console(width=100, force_terminal=False)
    with console.capture() as caught:
        console.print(study_screen(state, 65.0, limit))
    return [line.rstrip() for line in caught.get().splitlines()]


def test_a_screen_says_where_the_study_is() -> None:
    trials = [
        trial(0, 4.0),
        trial(1, None, "local", why="exit code 1"),
        trial(2, 2.0, "local"),
        trial(3, None, status="illegal", why="tp"),
    ]
    lines = drawn(study(*trials, calls=12), limit=600)
    assert lines[0].split(None, 1) == ["best", "2 s, +100.0 % over the baseline | trial 2, local: because"]
    assert lines[1].split(None, 1)[1] == ("3 calls of 12 | 4 proposals, 1 refused at no cost | 65 s of 10.0 min")
    assert lines[2].split(None, 1) == ["seed", "1 tried, best 4 s"]
    assert lines[3].split(None, 1) == ["local", "2 tried, 1 crashed, best 2 s"]
    assert lines[4].split(None, 1) == ["search", "█·▁"]
    assert lines[5].split(None, 1) == ["last", "3 seed: because → illegal: tp"]


def test_a_study_that_has_not_begun_says_so() -> None:
    lines = drawn(study())
    assert "no plan has run" in lines[0]
    assert "nothing yet" in lines[-1]


def test_words_of_strangers_stay_on_their_line() -> None:
    wild = "\x1b[2J\n" * 50 + "long " * 500
    lines = drawn(study(trial(0, 2.0, wild, reason=wild), trial(1, None, wild, reason=wild, why=wild)))
    assert len(lines) == 5
    assert not any("\x1b" in line for line in lines)
    assert max(map(len, lines)) <= 100
    assert news_line(study(trial(0, 2.0, wild, reason=wild)), 1.0).isprintable()


@pytest.mark.parametrize("calls", [0, 1, 7, 72, 73, 500])
def test_bars_are_at_most_as_many_as_fit(calls: int) -> None:
    bars = search_bars([trial(k, 1.0 + k / 100) for k in range(calls)])
    assert len(bars) == min(calls, 72)
    assert list(bars) == sorted(bars)


def test_a_bar_keeps_the_best_of_its_calls() -> None:
    slow = [trial(k, 9.0) for k in range(100)]
    slow[60] = trial(60, 1.0)
    assert search_bars(slow, width=10) == "██████▁███"
    assert search_bars([trial(1, None), trial(2, None, status="illegal")]) == "·"
