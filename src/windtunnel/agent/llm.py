"""A language model as a proposer: rounds of thought, each proposal with a hypothesis, each outcome told back."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from math import isfinite
from typing import Any

from windtunnel.agent import views
from windtunnel.agent.bench import Bench
from windtunnel.agent.brief import brief, instructions, short_brief
from windtunnel.agent.choices import Menu, menu
from windtunnel.agent.journal import Journal
from windtunnel.agent.thinking import Idea, Mind, Stopped, Thought, Unusable, Wanted
from windtunnel.agent.tools.look import repairs
from windtunnel.agent.words import clean
from windtunnel.errors import WindtunnelError
from windtunnel.search.proposers.base import Ground, Steps, Stepwise
from windtunnel.search.trial import FREE, Proposal, Trial

STRIKES = 2
"""Unusable rounds in a row after which the model is done without."""
PATIENCE = 4
"""Rounds in a row without a better plan after which the search has converged."""
PATIENCE_CHOICES = 12
MOST_ROUNDS = 500
HELD = 0.5
"""A hypothesis held where at least this share of the expected gain came, or the loss was no larger than twice it."""

Tried = Generator[Sequence[Proposal], Sequence[Trial], list[dict[str, Any]]]


class Llm(Stepwise):
    """Proposes what a model says; ``failed`` says why it was done without, and ``warn`` is told, once."""

    name = "llm"

    def __init__(self, ground: Ground, mind: Mind, bench: Bench, journal: Journal, warn: Callable[[str], None]) -> None:
        super().__init__(ground)
        self.failed: str | None = None
        self.without: Callable[[], None] = lambda: None
        """Told when the model is done without: who steps in for it."""
        self._mind = mind
        self._bench = bench
        self._journal = journal
        self._warn = warn
        self._last: list[dict[str, Any]] = []

    def tell(self, trial: Trial, *, own: bool) -> None:
        self._bench.trials.append(trial)
        super().tell(trial, own=own)

    def close(self) -> None:
        """Let go of the endpoint."""
        self._mind.close()

    def steps(self) -> Steps:
        if self._bench.baseline is None:
            yield [Proposal({}, "the baseline")]
        strikes, idle = 0, 0
        patience = PATIENCE_CHOICES if self._mind.choices else PATIENCE
        for number in range(1, MOST_ROUNDS + 1):
            if self._bench.left() < 1:
                return self._journal.say("end", "the calls are spent")
            before = self.best
            try:
                thought = yield from self._thought(number)
            except Stopped:
                return self._journal.say("end", "time was up")
            except Unusable as error:
                strikes += 1
                if error.fatal or strikes == STRIKES:
                    return self._give_up(str(error))
                self._journal.say("warning", f"round {number}: {error}")
                continue
            strikes = 0
            yield from self._carry_out(thought)
            idle = idle + 1 if self.best is before else 0
            if (why := self._ending(thought, idle, patience)) is not None:
                return self._journal.say("end", why)
        return self._journal.say("end", f"{MOST_ROUNDS} rounds")

    def _thought(self, number: int) -> Generator[Sequence[Proposal], Sequence[Trial], Thought]:
        """One round, the trials it asks for underway included."""
        offered: Menu = menu(self._bench) if self._mind.choices else {}
        if self._mind.choices and not offered:
            return Thought(stop=True)
        lessons = self._journal.lessons
        prompt = (
            short_brief(self._bench, number, offered)
            if self._mind.choices
            else brief(self._bench, number, self._last, lessons)
        )
        spend = instructions(self._bench, choices=self._mind.choices)
        found = self._mind.think(prompt, spend, offered)
        while isinstance(found, Wanted):
            answers = yield from self._tried(list(found.ideas.values()))
            found = self._mind.told(dict(zip(found.ideas, answers, strict=True)))
        return found

    def _carry_out(self, thought: Thought) -> Generator[Sequence[Proposal], Sequence[Trial], None]:
        self._journal.say("lesson", thought.learned)
        self._journal.say("plan", thought.plan)
        self._last = yield from self._tried(thought.ideas)

    def _tried(self, ideas: Sequence[Idea]) -> Tried:
        """Ideas as trials of the study; what is told back of each."""
        if not ideas:
            return []
        before = self.best
        said = [clean(self._journal.secrets.out_of(idea.hypothesis)) or "no reason was given" for idea in ideas]
        trials = yield [
            Proposal(self._bench.proposal(idea.changes), words) for idea, words in zip(ideas, said, strict=True)
        ]
        return [
            self._answer(idea, words, trial, before) for idea, words, trial in zip(ideas, said, trials, strict=True)
        ]

    def _answer(self, idea: Idea, words: str, trial: Trial, before: Trial | None) -> dict[str, Any]:
        """Hypothesis beside outcome, in the journal and for the model."""
        found: dict[str, Any] = {
            "hypothesis": words,
            "expected": None if idea.expect is None else views.percent(idea.expect),
        }
        found |= views.trial(trial, before)
        at = {} if before is None else before.changes
        self._journal.say("hypothesis", words, trial.number, changes=trial.changes, before=at, expect=idea.expect)
        if trial.outcome.status in FREE:
            found |= self._refusal(trial)
            self._journal.say("refused", trial.outcome.why or "refused", trial.number, repairs=found.get("repairs"))
            return found
        change = _change(trial, before)
        held = None if change is None or idea.expect is None else _held(change, idea.expect)
        found |= {"hypothesis_held": held}
        outcome = trial.outcome.why or trial.outcome.status
        if trial.outcome.step_time is not None:
            outcome = f"{trial.outcome.step_time:.4g} s"
            outcome += "" if change is None else f", {views.percent(change)} against the best before"
        self._journal.say(
            "outcome", outcome, trial.number, step_time=trial.outcome.step_time, change=change, held=held
        )  # fmt: skip
        return found

    def _refusal(self, trial: Trial) -> dict[str, Any]:
        """The nearest repairs of a plan that breaks a rule or does not fit."""
        error = self._bench.refusal(trial.changes)
        if error is not None:
            return {"repairs": [str(fault)[:300] for fault in error.faults[:4]]}
        try:
            return {"repairs": repairs(self._bench, self._bench.project(trial.changes), trial.changes)}
        except WindtunnelError:
            return {}

    def _ending(self, thought: Thought, idle: int, patience: int) -> str | None:
        if thought.stop:
            return "nothing more was worth a trial"
        if self._bench.certified() and not any(self._outside(idea) for idea in thought.ideas):
            return "the certificate holds, and nothing outside of its axes was proposed"
        return f"converged: {idle} rounds without a better plan" if idle >= patience else None

    def _outside(self, idea: Idea) -> bool:
        """Whether a plan is none of those that a certificate covers."""
        axes = {axis.path: axis.values for axis in self._bench.space.axes}
        return any(path not in axes or value not in axes[path] for path, value in idea.changes.items())

    def _give_up(self, why: str) -> None:
        self.failed = clean(self._journal.secrets.out_of(why), 300)
        self._journal.say("warning", f"the model was done without: {self.failed}")
        self._warn(self.failed)
        self.without()


def _change(trial: Trial, before: Trial | None) -> float | None:
    """The relative change of the step time."""
    mine, other = trial.outcome.step_time, None if before is None else before.outcome.step_time
    return mine / other - 1 if mine and other and isfinite(mine) else None


def _held(change: float, expected: float) -> bool:
    """Whether what came is about what was expected: half of a gain or more, at most twice a loss."""
    return change <= HELD * expected if expected < 0 else change <= expected / HELD
