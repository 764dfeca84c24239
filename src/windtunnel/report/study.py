"""What a study adds to the answer of a search, and studies read back from their files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from math import isfinite
from typing import Any, Protocol

from rich.console import Group, RenderableType
from rich.text import Text

from windtunnel.job.job import Job
from windtunnel.projection.result import Projection
from windtunnel.report.figures import shown, signed_percent, visible
from windtunnel.report.tables import table
from windtunnel.search.close_call import CloseCall
from windtunnel.search.exhaustive import Plan, Progress
from windtunnel.search.objective import Goal, front
from windtunnel.search.study import Study
from windtunnel.search.trial import FREE, Trial
from windtunnel.store.study_file import Row
from windtunnel.units import human_bytes, human_seconds


class Ended(Protocol):
    """A study and why it ended."""

    @property
    def study(self) -> Study: ...

    @property
    def ending(self) -> str: ...


def study_document(
    goal: Goal,
    progress: Progress,
    job_of: Callable[[Plan], Job],
    baseline: Projection,
    best: Projection | None,
    done: Ended | None,
    *,
    candidates: Sequence[Plan] = (),
    call: CloseCall | None = None,
    basin: str | None = None,
) -> dict[str, Any]:
    """The objectives of an answer, the front over them among ``candidates``, and the study it came from."""
    names = [objective.name for objective in goal.objectives]
    first = [goal.values(job_of(plan), plan.step_time, plan.peak_device) for plan in progress.found[:1]]
    plans = [(plan, goal.values(job_of(plan), plan.step_time, plan.peak_device)) for plan in candidates]
    traded = front(plans, lambda pair: pair[1]) if len(names) > 1 else []
    found: dict[str, Any] = {
        "objective": {
            "names": names,
            "units": [objective.unit for objective in goal.objectives],
            "best": _values(first[0]) if first else None,
            "baseline": _values(goal.values(baseline.job, baseline.step_time, baseline.memory.peak.device)),
            "front": [{"plan": plan.changes, "values": _values(values)} for plan, values in traded],
            "goodput": None if best is None or best.run is None else best.run.goodput,
            "checkpoint_interval": None if best is None or best.run is None else best.run.checkpoint_interval,
        },
        "close_call": None if call is None else asdict(call),
        "basin": basin,
        "study": None,
    }
    if done is None:
        return found
    study = done.study
    baseline_trial = next((trial for trial in study.trials if not trial.changes and trial.values), None)
    gain = {}
    before = None if baseline_trial is None else baseline_trial.outcome.step_time
    after = None if study.best is None else study.best.outcome.step_time
    if before and after:
        gain = {"gain": before / after - 1}
    found["study"] = {
        "ending": done.ending,
        "trials": len(study.trials),
        "calls": study.calls,
        "reused": study.reused,
        "oracle": study.oracle.name,
        "proposers": [proposer.name for proposer in study.proposers],
        "statuses": dict(Counter(trial.outcome.status for trial in study.trials)),
        "margin": study.screen.margin or None,
        "best": None if study.best is None else trial_document(study.best),
    }
    return found | gain


def trial_document(trial: Trial) -> dict[str, Any]:
    outcome = trial.outcome
    return {
        "number": trial.number,
        "proposer": trial.proposer,
        "reason": trial.reason,
        "changes": trial.changes,
        "status": outcome.status,
        "step_time": outcome.step_time,
        "peak_device": outcome.peak_device,
        "why": outcome.why,
        "provenance": dict(outcome.provenance),
        "seconds": outcome.seconds,
        "cost": outcome.cost,
        "values": _values(trial.values),
    }


def tried_document(facts: Mapping[str, Any], rows: Sequence[Row]) -> dict[str, Any]:
    """As ``study`` of an answer, of what the file of a study holds: it does not say how its sessions ended."""
    best = min((row.trial for row in rows if row.trial.values), key=lambda trial: trial.rank, default=None)
    return {
        "ending": None,
        "trials": len(rows),
        "calls": sum(row.trial.outcome.status not in FREE for row in rows),
        "reused": 0,
        "oracle": ", ".join(dict.fromkeys(row.oracle for row in rows)),
        "proposers": list(facts["proposers"]),
        "statuses": dict(Counter(row.trial.outcome.status for row in rows)),
        "margin": None,
        "best": None if best is None else trial_document(best),
    }


def row_document(row: Row) -> dict[str, Any]:
    """One line of an export."""
    return {**trial_document(row.trial), "oracle": row.oracle, "plan": row.plan, "at": row.at}


def _values(values: Iterable[float]) -> list[float | None]:
    return [value if isfinite(value) else None for value in values]


def study_text(document: Mapping[str, Any]) -> list[RenderableType]:
    """Objectives and study of an answer, where they say more than the search does."""
    objective, study = document["objective"], document["study"]
    lines: list[RenderableType] = []
    if objective["names"] != ["throughput"] and objective["best"] is not None:
        named = zip(objective["names"], objective["units"], objective["baseline"], objective["best"], strict=True)
        rows = [[name, _number(before), _number(after), unit] for name, unit, before, after in named]
        lines.append(table(["objective", "baseline", "best", ""], rows, left=1))
    if len(objective["front"]) > 1:
        rows = [[*map(_number, item["values"]), _spelled(item["plan"])[:60]] for item in objective["front"]]
        lines.append(table([*objective["names"], "front"], rows, left=len(objective["names"]) + 1))
    lines += [Text(line) for line in surroundings(document)]
    if study is not None:
        statuses = ", ".join(f"{count} {status}" for status, count in sorted(study["statuses"].items()))
        lines.append(
            Text(f"study: {', '.join(study['proposers'])}; {study['calls']} calls of {study['oracle']}; {statuses}")
        )
        if study["best"] is not None:
            best = study["best"]
            lines.append(Text(visible(f"found by {best['proposer']} in trial {best['number']}: {best['reason']}")))
        if study["margin"]:
            lines.append(Text(f"runs raised the memory margin to {study['margin']:.3f} times the projection"))
    return lines


def surroundings(document: Mapping[str, Any]) -> Iterator[str]:
    """What an answer stands on, in sentences: goodput, the shape of the optimum, what is close, what more would buy."""
    objective = document["objective"]
    if objective["checkpoint_interval"] is not None:
        every = human_seconds(objective["checkpoint_interval"])
        yield f"goodput {objective['goodput']:.1%} with a checkpoint every {every}"
    if document["basin"] is not None:
        shape = {"broad": "most plans one step away are within 2 %", "sharp": "most plans one step away are worse"}
        yield f"{document['basin']} optimum: {shape[document['basin']]}"
    if document["close_call"] is not None:
        call = document["close_call"]
        differ = (
            f"{call['plans']} of the runners-up are within 2 %; they differ by up to {human_seconds(call['seconds'])}"
        )
        yield f"{differ} in {call['term']}: {call['measurement']} would settle it"
    for item in document.get("buys") or ():
        gain = f"{signed_percent(item['gain'])} throughput each, {human_seconds(item['step_time'])} a step, at least"
        yield f"with {_spelled(item['cluster'])}: {gain}"


def rows_text(facts: Mapping[str, Any], rows: Sequence[Row]) -> RenderableType:
    """A study's trials as a table."""
    shown_rows = [
        [
            str(row.trial.number),
            visible(row.trial.proposer, 20),
            row.trial.outcome.status,
            human_seconds(row.trial.outcome.step_time) if row.trial.outcome.step_time else "",
            human_bytes(row.trial.outcome.peak_device) if row.trial.outcome.peak_device else "",
            visible(row.trial.outcome.why or row.trial.reason, 52),
        ]
        for row in rows
    ]
    about = f"{', '.join(facts.get('objective', []))} of {facts.get('job', {}).get('model', {}).get('name', 'a job')}"
    head = Text(f"{about}: {len(rows)} trials")
    return Group(head, table(["", "by", "", "step time", "peak", "why"], shown_rows, left=6))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _spelled(changes: Mapping[str, Any]) -> str:
    return " ".join(f"{path.rpartition('.')[2]}={shown(value)}" for path, value in changes.items())
