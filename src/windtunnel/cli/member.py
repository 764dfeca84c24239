"""One row of a portfolio: a job in a place and the study of its plans; whatever goes wrong is in the row."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from windtunnel.cli.clock import Clock
from windtunnel.cli.flags import Request
from windtunnel.cli.output import Output
from windtunnel.cli.search import search_of
from windtunnel.cli.studies import studied
from windtunnel.cli.tuning import Tuning
from windtunnel.errors import WindtunnelError
from windtunnel.projection.result import Projection

if TYPE_CHECKING:
    from windtunnel.cli.studies import Studied
    from windtunnel.search.objective import Goal

QUIET = Output(quiet=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A job, the place ``across`` puts it in, and how its study runs; it travels to other processes and machines.

    ``target`` in seconds, ``budget`` as on the command line, of this row alone.
    """

    name: str
    across: Mapping[str, Any]
    asked: Request
    tuning: Tuning
    vary: Sequence[str]
    space: str | None
    target: float | None
    budget: str

    @property
    def title(self) -> str:
        """The job and where it is."""
        return " ".join([self.name, *(f"{path.rpartition('.')[2]}={value}" for path, value in self.across.items())])


def row(member: Member) -> dict[str, Any]:
    """The answer for one member, or its error: plain values, the same wherever it was found but for ``seconds``."""
    start = time.perf_counter()
    try:
        found = _tuned(member)
    except WindtunnelError as error:
        faults = [{"path": f.path, "value": f.value, "rule": f.rule, "remedy": f.remedy} for f in error.faults]
        found = {"status": "refused", "error": {"kind": error.kind, "faults": faults}}
    except Exception as error:  # a defect in one row costs that row
        found = failed(f"an unexpected {type(error).__name__}: {error}")
    return _empty(member) | found | {"seconds": time.perf_counter() - start}


def failed(why: str, member: Member | None = None) -> dict[str, Any]:
    """A row without an answer."""
    fault = {"path": "windtunnel", "value": "", "rule": " ".join(why.split())[:300], "remedy": "tune this job alone"}
    found = {"status": "failed", "error": {"kind": "internal", "faults": [fault]}}
    return found if member is None else _empty(member) | found


def _empty(member: Member) -> dict[str, Any]:
    names = ("model", "accelerator", "num_accelerators", "baseline", "best", "plan", "gain", "objective", "study")
    head = {"name": member.name, "across": dict(member.across), "status": "", "error": None}
    return head | dict.fromkeys(names) | {"certificate": "none", "seconds": 0.0}


def _tuned(member: Member) -> dict[str, Any]:
    """The study of a member, run here to its end."""
    asked, tuning = member.asked, member.tuning
    if tuning.study is not None:
        tuning = replace(tuning, study=os.path.join(tuning.study, f"{_file_name(member.title)}.db"))
    clock = Clock(member.budget)
    search = search_of(asked, tuning, member.vary, member.space, member.target, clock, top=1, output=QUIET)
    done = studied(search, tuning, quiet=True, processes=1)
    asked, base, evidence, aim = search.asked, search.base, search.evidence, search.aim
    best = done.progress.best
    first = evidence.projected(base)
    found = None if best is None else evidence.projected(asked.load(best.changes))
    return {
        "status": "nothing fits" if found is None else "ok",
        "model": base.model.name,
        "accelerator": base.cluster.accelerator.name,
        "num_accelerators": base.cluster.num_accelerators,
        "baseline": _figures(first),
        "best": None if found is None else _figures(found),
        "plan": None if best is None else dict(best.changes),
        "gain": None if found is None else first.step_time / found.step_time - 1,
        "certificate": "exhaustive" if done.progress.certified else "none",
        "objective": _objective(aim, first, found),
        "study": _study(done),
    }


def _figures(projection: Projection) -> dict[str, Any]:
    return {
        "step_time": projection.step_time,
        "tokens_per_second": projection.tokens_per_second,
        "tokens_per_second_per_accelerator": projection.tokens_per_second_per_accelerator,
        "mfu": projection.mfu,
        "peak_device": projection.memory.peak.device,
        "verdict": projection.memory.verdict,
        "num_accelerators": projection.job.cluster.num_accelerators,
    }


def _objective(aim: Goal, first: Projection, best: Projection | None) -> dict[str, Any]:
    def values(projection: Projection | None) -> list[float | None] | None:
        if projection is None:
            return None
        found = aim.values(projection.job, projection.step_time, projection.memory.peak.device)
        return [value if value < float("inf") else None for value in found]

    return {
        "names": [objective.name for objective in aim.objectives],
        "units": [objective.unit for objective in aim.objectives],
        "baseline": values(first),
        "best": values(best),
    }


def _study(done: Studied) -> dict[str, Any]:
    study = done.study
    return {
        "ending": done.ending,
        "trials": len(study.trials),
        "calls": study.calls,
        "reused": study.reused,
        "oracle": study.oracle.name,
    }


def _file_name(title: str) -> str:
    return re.sub(r"[^\w.=-]+", "_", title)
