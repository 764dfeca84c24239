"""Where the tools of a server are carried out: one job or one sent along, one study each."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import windtunnel
from windtunnel.agent import views
from windtunnel.agent.bench import Bench
from windtunnel.agent.tools import TOOLS, call
from windtunnel.agent.words import clean
from windtunnel.catalog import tool_format as forms
from windtunnel.catalog.dump import job_to_mapping
from windtunnel.catalog.jobs import load_job, read_source
from windtunnel.catalog.models import find_model
from windtunnel.errors import Fault, FormatError, LegalityError, WindtunnelError
from windtunnel.job.job import Job
from windtunnel.projection.project import project
from windtunnel.search.mandate import within
from windtunnel.search.objective import goal
from windtunnel.search.oracle import Projecting
from windtunnel.search.screen import Screen
from windtunnel.search.space import default_space
from windtunnel.search.study import Study
from windtunnel.search.trial import FREE, Proposal, Trial
from windtunnel.store.journal import InMemory, Kept, key_of
from windtunnel.store.study_file import StudyFile

LONGEST = 60.0
"""Seconds after which a search in a tool stops with what it has."""
JOBS = 8
"""Jobs sent along whose studies are remembered."""


class Handed:
    """A proposer that is handed its plans."""

    name = "mcp"

    def __init__(self) -> None:
        self.waiting: list[Proposal] = []

    @property
    def finished(self) -> bool:
        return not self.waiting

    def ask(self) -> Proposal | None:
        return self.waiting.pop(0) if self.waiting else None

    def tell(self, trial: Trial, *, own: bool) -> None:
        """Nothing is learnt: whoever hands over plans does the thinking."""


class Place:
    """One job with its bench and its study."""

    def __init__(self, source: Mapping[str, Any], folder: Path, file: str | None) -> None:
        self._end = 0.0

        def load(changes: Mapping[str, object]) -> Job:
            return load_job(source, set=dict(changes), base_dir=folder)

        def vary(changes: Mapping[str, object]) -> Job:
            return load_job(source, set=dict(changes), base_dir=folder, repairs=False)

        job = load({})
        space, aim = default_space(job), goal(["throughput"], job)
        oracle = Projecting(projected=project, name="simulated")
        self.bench = Bench(
            job=job, space=space, load=load, vary=vary, goal=aim, stop=lambda: time.monotonic() > self._end
        )
        facts = {
            "job": job_to_mapping(job),
            "objective": ["throughput"],
            "target": None,
            "windtunnel": windtunnel.__version__,
        }
        self._handed = Handed()
        kept = None if file is None else _opened(file, facts)
        self._study = Study(
            proposers=[self._handed],
            oracle=oracle,
            screen=Screen(vary=within(vary, space), write=self.bench.proposal),
            goal=aim,
            journal=InMemory(job_to_mapping) if kept is None else Kept(kept, oracle.name, job_to_mapping),
        )

    def carry_out(self, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        self._end = time.monotonic() + LONGEST
        if name == "evaluate" and given.get("trial") is True:
            return self._trial(forms.read_arguments(forms.EvaluateArguments, given))
        return call(TOOLS[name], self.bench, given)

    def _trial(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """A trial of the study: screened, projected, kept."""
        reason = clean(given["hypothesis"]) or "asked for"
        self._handed.waiting.append(Proposal(self.bench.proposal(given["changes"]), reason))
        self._study.run(lambda: False, lambda: None)
        trial = self._study.trials[-1]
        self.bench.trials = list(self._study.trials)
        found = views.trial(trial, self.bench.best)
        if trial.outcome.status in FREE:
            error = self.bench.refusal(trial.changes)
            found |= {"legal": error is None} if error is None else views.refused(error)
            if error is None:
                found |= {"fits": False, **call(TOOLS["evaluate"], self.bench, {"changes": given["changes"]})}
        return found


def _opened(path: str, facts: Mapping[str, Any]) -> StudyFile:
    file = StudyFile.create(path, facts)
    if file.facts().get("job") != facts["job"]:
        file.close()
        raise FormatError(Fault("--study", path, "the study is about another job", "name another file"))
    return file


class Desk:
    """The server's own job, if it has one, and the jobs that callers send along."""

    def __init__(self, job: str | None, study: str | None) -> None:
        self._own: Place | None = None
        if job is not None:
            source, folder = read_source(job)
            self._own = Place(source, folder, study)
        self._sent: dict[str, Place] = {}

    def answer(self, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """What a tool answers; ``error`` or ``legal: false`` with the faults where it cannot. Raises nothing a caller
        could cause."""
        try:
            if name not in TOOLS:
                raise FormatError(Fault("tool", name[:80], "there is no such tool", f"known: {', '.join(TOOLS)}"))
            rest = {key: value for key, value in given.items() if key != "job"}
            return self._place(given.get("job")).carry_out(name, rest)
        except WindtunnelError as error:
            return {"error": views.refused(error)["faults"]}

    def _place(self, job: object) -> Place:
        if job is None:
            if self._own is None:
                rule = "the server was started without a job"
                raise FormatError(Fault("job", "", rule, "send a job in the job format, as a mapping"))
            return self._own
        if not isinstance(job, Mapping):
            raise FormatError(Fault("job", str(job)[:60], "a job in the job format is due", "send a mapping"))
        _without_files(job)
        key = key_of(job)
        if key not in self._sent:
            while len(self._sent) >= JOBS:
                del self._sent[next(iter(self._sent))]
            self._sent[key] = Place(job, Path.cwd(), None)
        return self._sent[key]


def _without_files(job: Mapping[str, Any]) -> None:
    """Raises LegalityError for a job that would have files read on the server's machine."""
    model, plan = job.get("model"), job.get("plan")
    base = model.get("base") if isinstance(model, Mapping) else model
    faults = []
    if isinstance(base, str) and not _known(base):
        faults.append(Fault("model", base[:80], "a job sent along names a model of the catalog", "or spell it out"))
    pipeline = plan.get("pipeline") if isinstance(plan, Mapping) else None
    if isinstance(pipeline, Mapping) and isinstance(pipeline.get("orders"), str):
        faults.append(Fault("plan.pipeline.orders", "", "names a file", "write the rows themselves"))
    if faults:
        raise LegalityError(faults)


def _known(model: str) -> bool:
    try:
        find_model(model)
    except WindtunnelError:
        return False
    return True
