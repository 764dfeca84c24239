"""What a trial may change: how the job is run, and whatever the space has; never what is trained, nor on what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from windtunnel.errors import Fault, LegalityError
from windtunnel.job.job import Job
from windtunnel.search.points import Vary
from windtunnel.search.space import Space

WORKLOAD = (
    "plan.batch.global_batch_size",
    "plan.batch.sequence_length",
    "plan.precision",
    "plan.optimizer",
    "plan.dropout",
    "plan.moe.routing",
    "plan.moe.imbalance",
    "plan.moe.capacity_factor",
    "plan.loss.logits_dtype",
)
"""Plan paths that say what is computed: with other values another model comes out, or another question is asked."""


def within(vary: Vary, space: Space) -> Vary:
    """``vary`` for trials: raises LegalityError for changes that are not up to a search."""

    def varied(changes: Mapping[str, object]) -> Job:
        faults = outside(changes, space)
        if faults:
            raise LegalityError(faults)
        return vary(changes)

    return varied


def outside(changes: Mapping[str, Any], space: Space) -> list[Fault]:
    """A fault for every change that a trial may not make."""
    named = [axis.path for axis in space.axes]
    others = {path: value for path, value in changes.items() if not _below(path, named)}
    return [*(fault for path in others for fault in _faults(path)), *reads_files(others)]


def reads_files(changes: Mapping[str, Any]) -> list[Fault]:
    """A fault for every value that would be read as the name of a file."""
    found = []
    for path, value in _leaves(changes):
        if path.split(".")[0] == "model":
            found.append(Fault(path, "", "the model is that of the job", "leave it out"))
        elif path == "plan.pipeline.orders" and isinstance(value, str):
            found.append(Fault(path, "", "names a file", "write the rows themselves, a list of lists"))
    return found


def _leaves(changes: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in changes.items():
        path = f"{above}.{key}" if above else str(key)
        if isinstance(value, Mapping):
            yield from _leaves(value, path)
        else:
            yield path, value


def _faults(path: str) -> list[Fault]:
    if not path.startswith("plan."):
        rule = "a trial changes the plan; model, machine and software stay as they are"
        return [Fault(path, "", rule, "ask what it would give by evaluate, without a trial")]
    if _below(path, WORKLOAD):
        return [Fault(path, "", "says what is trained, not how it is run", "leave it as the job has it")]
    if _below_any(WORKLOAD, path):
        return [Fault(path, "", "a section with values that are not up to a search", "set single values below it")]
    return []


def _below(path: str, sections: Sequence[str]) -> bool:
    return any(path == section or path.startswith(f"{section}.") for section in sections)


def _below_any(paths: Sequence[str], section: str) -> bool:
    return any(path.startswith(f"{section}.") for path in paths)
