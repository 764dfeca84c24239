"""Studies on the command line: the file, the oracle and the proposers put together, run, and told as a search."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import windtunnel
from windtunnel.catalog.dump import job_to_mapping
from windtunnel.catalog.rates import rates
from windtunnel.cli.clock import seconds_of
from windtunnel.cli.command import Running, words_of
from windtunnel.cli.every_plan import check_bounded, every_plan
from windtunnel.cli.llm import NAME as LLM
from windtunnel.cli.llm import assistant
from windtunnel.cli.queue import Queued
from windtunnel.cli.search import Search
from windtunnel.cli.tuning import Tuning
from windtunnel.cli.watch import Watch
from windtunnel.errors import Fault, FormatError
from windtunnel.measure.slurm import LOGS
from windtunnel.projection.choices import Changes
from windtunnel.search.examine import Examiner
from windtunnel.search.exhaustive import Plan, Progress
from windtunnel.search.mandate import within
from windtunnel.search.oracle import Projecting
from windtunnel.search.proposers import PROPOSERS, Ground, Proposer
from windtunnel.search.proposers.exhaustive import Certified
from windtunnel.search.proposers.turns import Turn
from windtunnel.search.screen import Screen
from windtunnel.search.space import EVEN, LAYOUT
from windtunnel.search.study import Ending, Oracle, Study
from windtunnel.search.trial import FREE, Trial
from windtunnel.store.journal import InMemory, Kept
from windtunnel.store.notebook import Bound, Loose, Note, Notebook
from windtunnel.store.study_file import StudyFile
from windtunnel.store.tickets import Tickets

if TYPE_CHECKING:
    from windtunnel.agent.llm import Llm


@dataclass(frozen=True, slots=True, kw_only=True)
class Studied:
    """A study that has ended, and the same as the progress of a search."""

    study: Study
    ending: Ending
    progress: Progress
    notes: list[Note]
    """The journal of a language model that took part."""


def studied(search: Search, tuning: Tuning, *, quiet: bool, processes: int = 0) -> Studied:
    """Run a study to its end; an exhaustive search in it takes ``processes``, or all there are.

    Raises WindtunnelError for options that make none, and for a file that cannot be used.
    """
    asked, base, goal = search.asked, search.base, search.aim
    examiner = Examiner(job=base, space=search.axes, vary=asked.vary, top=search.top)
    searched = Progress()

    def all_of_them() -> list[Plan]:
        nonlocal searched
        searched, _ = every_plan(search, quiet=quiet, processes=processes)
        return searched.found

    by_time = goal.objectives[0].name != "memory"
    ground = Ground(job=base, space=search.axes, rates=rates(), seed=tuning.seed, by_time=by_time)
    check_names(tuning)
    if Certified.name in {name.partition(":")[0] for name in tuning.names}:
        check_bounded(goal)
    make = assistant(tuning, asked, goal, search.clock, quiet=quiet)
    with search.clock.stoppable(), ExitStack() as ends:
        oracle = _oracle(tuning, search, quiet=quiet)
        file = _file(tuning, search)
        if file is not None:
            ends.callback(file.close)
        if isinstance(oracle, Running | Queued):
            ends.callback(oracle.close)
        name = oracle.name if tuning.run is None else f"{oracle.name} {tuning.run}"
        journal = InMemory(job_to_mapping) if file is None else Kept(file, name, job_to_mapping)
        if file is not None and isinstance(oracle, Queued):
            oracle.take_over(Tickets(file=file, oracle=name, key=journal.key))
        notebook: Notebook = Loose() if file is None else Bound(file)
        study = Study(
            proposers=(),
            oracle=oracle,
            screen=Screen(vary=within(asked.vary, search.axes), write=lambda changes: _written(examiner, changes)),
            goal=goal,
            journal=journal,
            most_calls=inf if tuning.calls is None else tuning.calls,
        )
        llm = make and make(
            base, ground, notebook, name, lambda: study.most_calls - study.calls, lambda: searched.certified
        )
        if llm is not None:
            ends.callback(llm.close)
        study.proposers = _proposers(tuning, ground, all_of_them, llm)
        watch = Watch(search.clock, study, quiet=quiet)
        ends.callback(watch.clear)
        ending = study.run(search.clock.over, watch.tick)
        notes = notebook.notes()
    plans = [(trial, _written(examiner, trial.changes)) for trial in study.trials]
    progress = progress_of(plans, study.calls, search.top)
    by_model = tuning.run is None and search.evidence.certifies
    progress.certified = searched.certified and by_model and study.best is not None
    return Studied(study=study, ending=ending, progress=progress, notes=notes)


def _written(examiner: Examiner, changes: Changes) -> Changes:
    """The words of an axis as a job file has them; a balanced layout that is the even one is left out."""
    return examiner.written(changes) or examiner.written({**changes, LAYOUT: EVEN}) or changes


def check_names(tuning: Tuning) -> None:
    """Raises FormatError for proposers that are not there."""
    known = (*PROPOSERS, Certified.name, LLM)
    parts = [name.partition(":") for name in tuning.names]
    unknown = [name for name, colon, most in parts if name not in known or (colon and not most.isdecimal())]
    if unknown or not parts:
        remedy = f"choose from {', '.join(known)}; seed:12 is at most 12 calls of seed"
        raise FormatError(Fault("--proposer", ",".join(unknown), "no such proposer", remedy))


def _proposers(tuning: Tuning, ground: Ground, search: Callable[[], list[Plan]], llm: Llm | None) -> list[Proposer]:
    """The proposers in their order. A language model is followed by seed, so that no answer is worse than seed's; one
    that has to be done without, by the exhaustive search first."""

    def made(name: str) -> Proposer:
        if name == LLM and llm is not None:
            return llm
        return Certified(ground, search) if name == Certified.name else PROPOSERS[name](ground)

    named = [name.partition(":") for name in tuning.names]
    found = [Turn(made(name), int(most)) if most else made(name) for name, _, most in named]
    if llm is not None:
        had = {name for name, _, most in named if not most}
        found += [PROPOSERS["seed"](ground)] if "seed" not in had else []
        if Certified.name not in had:
            after = [name for name, _, _ in named].index(LLM) + 1
            llm.without = lambda: found.insert(after, Certified(ground, search))
    return found


def _oracle(tuning: Tuning, search: Search, *, quiet: bool) -> Oracle:
    if tuning.run is None:
        if tuning.slurm:
            raise FormatError(Fault("--slurm", "", "there is no run to queue", "add --run COMMAND"))
        return Projecting(projected=search.evidence.projected, name=search.evidence.name)
    if tuning.workers < 1:
        raise FormatError(Fault("--workers", str(tuning.workers), "at least one run at a time", "write --workers 1"))
    words, timeout = words_of(tuning.run, search.base), seconds_of("--timeout", tuning.timeout)
    if tuning.slurm:
        folder = os.path.join(os.path.dirname(os.path.abspath(tuning.study or "")), LOGS)
        return Queued(words, folder=folder, timeout=timeout, workers=tuning.workers, quiet=quiet)
    return Running(words, timeout=timeout, workers=tuning.workers)


def _file(tuning: Tuning, search: Search) -> StudyFile | None:
    """The study's file, new or resumed."""
    if tuning.study is None:
        if tuning.resume:
            raise FormatError(Fault("--resume", "", "there is no study to go on with", "name it with --study FILE"))
        return None
    facts: dict[str, Any] = {
        "job": job_to_mapping(search.base),
        "asked": search.asked.to_mapping(),
        "profile": tuning.profile and str(Path(tuning.profile).resolve()),
        "anchors": [str(Path(path).resolve()) for path in tuning.anchor or ()],
        "objective": [objective.name for objective in search.aim.objectives],
        "target": search.aim.target,
        "space": {axis.path: list(axis.values) for axis in search.axes.axes},
        "proposers": tuning.names,
        "seed": tuning.seed,
        "windtunnel": windtunnel.__version__,
    }
    file = StudyFile.create(tuning.study, facts)
    kept, here = file.facts(), json.loads(json.dumps(facts))
    other = [name for name in ("job", "objective", "target") if kept.get(name) != here[name]]
    if other:
        file.close()
        rule = f"the study is about another {' and another '.join(other)}"
        raise FormatError(Fault("--study", tuning.study, rule, "name another file"))
    if not tuning.resume and next(file.rows(), None) is not None:
        file.close()
        raise FormatError(Fault("--study", tuning.study, "the study has trials", "add --resume, or name another file"))
    return file


def progress_of(plans: Sequence[tuple[Trial, Changes]], calls: int, top: int) -> Progress:
    """Trials and their changes as a job file has them, in the words of a search: the best of them, each once."""
    found: dict[str, Plan] = {}
    answered = [(trial, written) for trial, written in plans if trial.values and trial.rank[0] < inf]
    for trial, written in sorted(answered, key=lambda pair: pair[0].rank):
        outcome = trial.outcome
        assert outcome.step_time is not None
        peak = outcome.peak_device if outcome.peak_device is not None else 0.0
        plan = Plan(changes=written, step_time=outcome.step_time, peak_device=peak)
        found.setdefault(repr((outcome.step_time, peak)), plan)
    best = list(found.values())
    refused = sum(trial.outcome.status in FREE for trial, _ in plans)
    return Progress(
        enumerated=len(plans),
        legal=sum(trial.outcome.status != "illegal" for trial, _ in plans),
        pruned=refused,
        evaluated=len(plans) - refused,
        exactly_timed=calls,
        phase="done",
        best=best[0] if best else None,
        found=best[:top],
        front=[(plan.step_time, plan.peak_device, plan.changes) for plan in best],
    )
