"""Whose seconds a search believes: the model's, a profile's, or the model's as own runs correct it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import windtunnel
from windtunnel.cli.output import Output, print_note
from windtunnel.errors import Fault, FormatError, MissingError

if TYPE_CHECKING:
    from windtunnel.calibration.anchor import Anchor
    from windtunnel.cli.flags import Request
    from windtunnel.cli.tuning import Tuning
    from windtunnel.job.job import Job
    from windtunnel.projection.result import Projection
    from windtunnel.search.space import Space


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """How a plan is projected. ``name`` tells answers apart in a study's file: equal names, equal answers.

    ``certifies``: the model ranks plans as this does, so that its exhaustive search certifies the best one.
    """

    name: str
    projected: Callable[[Job], Projection]
    certifies: bool


def evidence_of(asked: Request, base: Job, space: Space, tuning: Tuning, output: Output) -> tuple[Request, Evidence]:
    """The evidence named on the command line, and the request under the constants that go with it.

    Raises FormatError where more than one oracle is named or a measurement would have to hold for other machines,
    MissingError where no run is comparable.
    """
    _check_one(tuning)
    if tuning.profile is not None or tuning.anchor:
        _check_one_machine(space)
    return evidence(asked, base, tuning.profile, tuning.anchor or (), output)


def evidence(
    asked: Request, base: Job, profile: str | None, anchors: Sequence[str], output: Output
) -> tuple[Request, Evidence]:
    """The evidence of a profile, of own runs, or of the model alone. Raises as ``evidence_of``."""
    from windtunnel.projection.project import project

    if profile is not None:
        return asked, _profiled(profile, base, output)
    if anchors:
        found = anchor_of(base, anchors, output)
        asked = replace(asked, constants=found.values)
        name = f"anchored {_digest(asked.load().constants, found.factor)}"
        return asked, Evidence(name=name, projected=_carrying(found), certifies=True)
    return asked, Evidence(name=f"simulated {_digest(base.constants)}", projected=project, certifies=True)


def anchor_of(job: Job, files: Sequence[str], output: Output) -> Anchor:
    """What its user's own runs say about a job. Raises MissingError where none of them is comparable."""
    from windtunnel.calibration.anchor import anchor, attributed, comparable_runs
    from windtunnel.catalog.calibration import spreads
    from windtunnel.projection.project import step_time
    from windtunnel.records.own import own_runs

    own = comparable_runs(job, own_runs(files))
    if not own:
        rule = "an anchor is a measured speed of the same framework on the same accelerator"
        given = f"{job.software.framework} on {job.cluster.accelerator.name}"
        raise MissingError(Fault("--anchor", " ".join(files)[:80], rule, f"name records of {given}"))
    found = anchor(job, own, spreads(), step_time)
    terms = ", ".join(f"{name} {before:.3g} → {after:.3g}" for name, before, after in attributed(job, found)[:3])
    print_note(f"anchored on {found.runs} runs: {terms or 'no constant moved'}; the rest × {found.factor:.3f}", output)
    return found


def _carrying(found: Anchor) -> Callable[[Job], Projection]:
    """Projects jobs under the anchor's constants, times its factor."""
    from windtunnel.calibration.anchor import anchored
    from windtunnel.projection.project import project

    return lambda job: anchored(project(job), found)


def _profiled(path: str, base: Job, output: Output) -> Evidence:
    from windtunnel.catalog.profiles import read_profile
    from windtunnel.cost.suits import warnings
    from windtunnel.projection.measured import project_measured

    profile = read_profile(path)
    for warning in warnings(base, profile):
        print_note(f"warning: {warning}", output)
    name = f"profile {_digest(base.constants, profile)}"
    return Evidence(name=name, projected=lambda job: project_measured(job, profile)[0], certifies=False)


MORE = 0.1
"""Share of simulated seconds that the best plan may have beyond the baseline."""


def warn_unproven(document: Mapping[str, Any], output: Output) -> None:
    """Say where the best plan stands on simulation that the baseline does not need."""
    if document["best"] is None:
        return
    best, base = (document[name]["provenance"]["simulated"] for name in ("best", "baseline"))
    if best > base + MORE:
        remedy = "write it with --out and time its ops with windtunnel measure"
        said = f"{best:.0%} of the best plan's seconds are simulated, {base:.0%} of the baseline's: {remedy}"
        print_note(f"warning: {said}", output)


def _digest(*of: object) -> str:
    """Eight hexadecimal digits that change with what projections are made of, the program included."""
    return blake2b(repr((windtunnel.__version__, *of)).encode(), digest_size=4).hexdigest()


def _check_one(tuning: Tuning) -> None:
    named = {"--run": tuning.run, "--profile": tuning.profile, "--anchor": tuning.anchor}
    given = [option for option, value in named.items() if value]
    if len(given) > 1:
        rule = "one oracle answers for all plans of a study"
        raise FormatError(Fault(given[1], "", f"{rule}, and {given[0]} is one", f"leave out {given[0]} or {given[1]}"))


def _check_one_machine(space: Space) -> None:
    """Raises FormatError for axes that lead to another accelerator or framework than the one measured."""
    for axis in space.axes:
        if axis.path.startswith(("cluster.accelerator", "software.")) and axis.path != "cluster.accelerators_per_node":
            rule = "what was measured holds for its accelerator and software"
            raise FormatError(Fault("--vary", axis.path, rule, "leave that axis out, or tune by the model alone"))
