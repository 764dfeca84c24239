"""Studies on the command line: the file, the oracle and the proposers put together, run, and told as a search."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

import windtunnel
from windtunnel.catalog.dump import job_to_mapping
from windtunnel.cli.clock import Clock, StatusLine, seconds_of
from windtunnel.cli.command import Running, words_of
from windtunnel.cli.every_plan import check_bounded, every_plan
from windtunnel.cli.evidence import Evidence
from windtunnel.cli.flags import Request
from windtunnel.cli.queue import Queued
from windtunnel.cli.tuning import Tuning
from windtunnel.errors import Fault, FormatError
from windtunnel.job.job import Job
from windtunnel.measure.slurm import LOGS
from windtunnel.projection.choices import Changes
from windtunnel.search.examine import Examiner
from windtunnel.search.exhaustive import Plan, Progress
from windtunnel.search.objective import Goal
from windtunnel.search.oracle import Projecting
from windtunnel.search.proposers import PROPOSERS, Ground, Proposer
from windtunnel.search.proposers.exhaustive import Certified
from windtunnel.search.screen import Screen
from windtunnel.search.space import EVEN, LAYOUT, Space
from windtunnel.search.study import Ending, Oracle, Study
from windtunnel.search.trial import FREE
from windtunnel.store.journal import InMemory, Kept
from windtunnel.store.study_file import StudyFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Studied:
    """A study that has ended, and the same as the progress of a search."""

    study: Study
    ending: Ending
    progress: Progress


def studied(
    asked: Request,
    base: Job,
    space: Space,
    goal: Goal,
    tuning: Tuning,
    clock: Clock,
    evidence: Evidence,
    *,
    top: int,
    quiet: bool,
    processes: int = 0,
) -> Studied:
    """Run a study to its end; an exhaustive search in it takes ``processes``, or all there are.

    Raises WindtunnelError for options that make none, and for a file that cannot be used.
    """
    examiner = Examiner(job=base, space=space, vary=asked.vary, top=top)
    searched = Progress()

    def search() -> list[Plan]:
        nonlocal searched
        searched, _ = every_plan(asked, base, space, goal, clock, top=top, quiet=quiet, processes=processes)
        return searched.found

    proposers = _proposers(tuning, Ground(job=base, space=space, seed=tuning.seed), search, goal)
    oracle = _oracle(tuning, base, evidence)
    file = _file(tuning, base, space, goal)
    name = oracle.name if tuning.run is None else f"{oracle.name} {tuning.run}"
    study = Study(
        proposers=proposers,
        oracle=oracle,
        screen=Screen(vary=asked.vary, write=lambda changes: _written(examiner, changes)),
        goal=goal,
        journal=InMemory(job_to_mapping) if file is None else Kept(file, name, job_to_mapping),
        most_calls=inf if tuning.calls is None else tuning.calls,
    )
    line = StatusLine(clock, lambda: _said(study), quiet=quiet)
    try:
        with clock.stoppable():
            ending = study.run(clock.over, line.tick)
    finally:
        line.clear()
        if isinstance(oracle, Running | Queued):
            oracle.close()
        if file is not None:
            file.close()
    progress = _progress(study, examiner, top)
    progress.certified = searched.certified and tuning.run is None and evidence.certifies and study.best is not None
    return Studied(study=study, ending=ending, progress=progress)


def _written(examiner: Examiner, changes: Changes) -> Changes:
    """The words of an axis as a job file has them; a balanced layout that is the even one is left out."""
    return examiner.written(changes) or examiner.written({**changes, LAYOUT: EVEN}) or changes


def _proposers(tuning: Tuning, ground: Ground, search: Callable[[], list[Plan]], goal: Goal) -> list[Proposer]:
    known = (*PROPOSERS, Certified.name)
    unknown = [name for name in tuning.names if name not in known]
    if unknown or not tuning.names:
        remedy = f"choose from {', '.join(known)}"
        raise FormatError(Fault("--proposer", ",".join(unknown), "no such proposer", remedy))
    if Certified.name in tuning.names:
        check_bounded(goal)
    return [Certified(ground, search) if name == Certified.name else PROPOSERS[name](ground) for name in tuning.names]


def _oracle(tuning: Tuning, base: Job, evidence: Evidence) -> Oracle:
    if tuning.run is None:
        if tuning.slurm:
            raise FormatError(Fault("--slurm", "", "there is no run to queue", "add --run COMMAND"))
        return Projecting(projected=evidence.projected, name=evidence.name)
    if tuning.workers < 1:
        raise FormatError(Fault("--workers", str(tuning.workers), "at least one run at a time", "write --workers 1"))
    words, timeout = words_of(tuning.run, base), seconds_of("--timeout", tuning.timeout)
    if tuning.slurm:
        folder = os.path.join(os.path.dirname(os.path.abspath(tuning.study or "")), LOGS)
        return Queued(words, folder=folder, timeout=timeout, workers=tuning.workers)
    return Running(words, timeout=timeout, workers=tuning.workers)


def _file(tuning: Tuning, base: Job, space: Space, goal: Goal) -> StudyFile | None:
    """The study's file, new or resumed."""
    if tuning.study is None:
        if tuning.resume:
            raise FormatError(Fault("--resume", "", "there is no study to go on with", "name it with --study FILE"))
        return None
    facts: dict[str, Any] = {
        "job": job_to_mapping(base),
        "objective": [objective.name for objective in goal.objectives],
        "target": goal.target,
        "space": {axis.path: list(axis.values) for axis in space.axes},
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


def _progress(study: Study, examiner: Examiner, top: int) -> Progress:
    """The trials in the words of a search: the best of them, each once."""
    plans: dict[str, Plan] = {}
    answered = [trial for trial in study.trials if trial.values and trial.rank[0] < inf]
    for trial in sorted(answered, key=lambda trial: trial.rank):
        outcome = trial.outcome
        assert outcome.step_time is not None
        changes = _written(examiner, trial.changes)
        peak = outcome.peak_device if outcome.peak_device is not None else 0.0
        key = repr((outcome.step_time, peak))
        plans.setdefault(key, Plan(changes=changes, step_time=outcome.step_time, peak_device=peak))
    found = list(plans.values())
    legal = [trial for trial in study.trials if trial.outcome.status != "illegal"]
    refused = [trial for trial in study.trials if trial.outcome.status in FREE]
    return Progress(
        enumerated=len(study.trials),
        legal=len(legal),
        pruned=len(refused),
        evaluated=len(study.trials) - len(refused),
        exactly_timed=study.calls,
        phase="done",
        best=found[0] if found else None,
        found=found[:top],
        front=[(plan.step_time, plan.peak_device, plan.changes) for plan in found],
    )


def _said(study: Study) -> str:
    """The state of a study in a line."""
    last = study.trials[-1] if study.trials else None
    best = f", best {study.best.outcome.step_time:.4g} s" if study.best and study.best.outcome.step_time else ""
    now = f" | {last.proposer}: {last.reason}" if last else ""
    return f"{len(study.trials):,} trials, {study.calls:,} calls{best}{now}"
