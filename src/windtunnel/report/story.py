"""A study as a person reads it: the answer, how it was found, what was tried, why, and what became of it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Any

from windtunnel.report.answer_blocks import answer_blocks
from windtunnel.report.blocks import Block, Figure, Heading, Items, Paragraph, Table
from windtunnel.report.figures import differences, signed_percent
from windtunnel.report.search_plot import search_plot
from windtunnel.search.trial import FREE, Trial
from windtunnel.units import human_bytes, human_seconds

MOST = 400
"""Rows of the longest tables."""


def story(
    answer: Mapping[str, Any], trials: Sequence[Trial], about: Mapping[str, str], more: Sequence[Block] = ()
) -> list[Block]:
    """The blocks of a report.

    ``answer`` is the document of ``tune --json``; ``trials`` are those of the study, none where every plan was looked
    at; ``about`` says in words what was searched. ``more`` are sections between the search and the tables of trials:
    what a proposer has to say of its own.
    """
    return [
        *(Paragraph(f"{name}: {words}") for name, words in about.items() if words),
        *answer_blocks(answer),
        *(_search(answer, trials) if trials else ()),
        *more,
        *(_tables(trials) if trials else ()),
    ]


def _search(answer: Mapping[str, Any], trials: Sequence[Trial]) -> Iterator[Block]:
    calls = [trial for trial in trials if trial.outcome.status not in FREE]
    yield Heading("The search")
    yield Figure(search_plot(trials), "Every plan that was tried, in order: its step time, and the best so far.")
    yield Items(list(_spent(answer, trials, calls)))
    yield Table(head=["proposer", "proposals", "calls", "times best", "its best"], rows=list(_proposers(trials)))
    yield Heading("What helped")
    yield Table(
        head=["trial", "by", "why", "what changed", "step time", "gain"], rows=list(_improvements(trials)), left=4
    )


def _spent(answer: Mapping[str, Any], trials: Sequence[Trial], calls: Sequence[Trial]) -> Iterator[str]:
    """The budget, in every unit it is counted in."""
    yield f"{len(trials):,} proposals, of which {len(calls):,} took a call and {len(trials) - len(calls):,} were free"
    statuses = Counter(trial.outcome.status for trial in trials)
    yield "outcomes: " + ", ".join(f"{count:,} {status}" for status, count in statuses.most_common())
    seconds, cost = (sum(getattr(trial.outcome, name) for trial in calls) for name in ("seconds", "cost"))
    if seconds:
        yield f"{human_seconds(seconds)} of runs, {cost / 3600:,.3g} accelerator-hours"
    study = answer["study"]
    if study["reused"]:
        yield f"{study['reused']:,} answers came from an earlier session"
    if study["ending"] is not None:
        yield f"ended: {ENDINGS[study['ending']]}"
    if study["margin"]:
        yield f"runs raised the memory margin to {study['margin']:.3f} times the projection"


ENDINGS = {
    "exhausted": "nothing more was proposed",
    "calls": "the calls were spent",
    "stopped": "it was told to stop, or its time was over",
    "stuck": "nothing that was proposed could run",
}


def _proposers(trials: Sequence[Trial]) -> Iterator[list[str]]:
    leaders = [trial for trial, _ in _records(trials)]
    for name in dict.fromkeys(trial.proposer for trial in trials):
        own = [trial for trial in trials if trial.proposer == name]
        best = min((trial.outcome.step_time for trial in own if trial.outcome.step_time), default=None)
        calls = sum(trial.outcome.status not in FREE for trial in own)
        led = sum(trial.proposer == name for trial in leaders)
        yield [name, f"{len(own):,}", f"{calls:,}", f"{led:,}", "" if best is None else human_seconds(best)]


def _records(trials: Sequence[Trial]) -> Iterator[tuple[Trial, Trial | None]]:
    """Each trial that was the best when it was told, with the one it replaced."""
    best: Trial | None = None
    for trial in trials:
        if trial.rank[0] < inf and (best is None or trial.rank < best.rank):
            yield trial, best
            best = trial


def _improvements(trials: Sequence[Trial]) -> Iterator[list[str]]:
    for trial, before in _records(trials):
        seconds, old = trial.outcome.step_time, None if before is None else before.outcome.step_time
        gain = signed_percent(old / seconds - 1) if old and seconds else ""
        made = differences(trial.changes, {} if before is None else before.changes)
        yield [str(trial.number), trial.proposer, trial.reason, made, human_seconds(seconds or 0.0), gain]


def _tables(trials: Sequence[Trial]) -> Iterator[Block]:
    calls = [trial for trial in trials if trial.outcome.status not in FREE]
    yield Heading("What was tried")
    yield Table(
        head=["trial", "by", "why", "outcome", "step time", "peak"],
        rows=[_row(trial) for trial in calls[:MOST]],
        left=4,
        folded=_counted(len(calls), "plans that took a call"),
    )
    refused = _refusals(trials)
    if refused:
        yield Heading("What was refused, at no cost")
        yield Table(
            head=["outcome", "rule", "for example", "plans"],
            rows=refused[:MOST],
            left=3,
            folded=_counted(len(refused), "rules"),
        )


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}" + (f"; the first {MOST} of them" if number > MOST else "")


def _row(trial: Trial) -> list[str]:
    outcome = trial.outcome
    said = outcome.status if outcome.status == "ok" else f"{outcome.status}: {outcome.why}"
    seconds = "" if outcome.step_time is None else human_seconds(outcome.step_time)
    peak = "" if outcome.peak_device is None else human_bytes(outcome.peak_device)
    return [str(trial.number), trial.proposer, trial.reason, said, seconds, peak]


def _refusals(trials: Sequence[Trial]) -> list[list[str]]:
    """Refusals by the first rule they name, whatever its figures: status, rule, the reason of the first, how many."""
    first: dict[tuple[str, str], Trial] = {}
    counts = Counter[tuple[str, str]]()
    for trial in trials:
        if trial.outcome.status in FREE:
            key = (trial.outcome.status, re.sub(r"[\d.]+", "…", _first_line(trial.outcome.why)))
            first.setdefault(key, trial)
            counts[key] += 1
    return [
        [key[0], _first_line(first[key].outcome.why), f"{first[key].proposer}: {first[key].reason}", f"{count:,}"]
        for key, count in counts.most_common()
    ]


def _first_line(text: str) -> str:
    return (text.splitlines() or [""])[0]
