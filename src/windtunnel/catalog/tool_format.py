"""What the tools for assistants take: one section a tool, read strictly; the schemas they are offered with."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StrictBool, StrictStr, ValidationError, WithJsonSchema

from windtunnel.catalog.faults import faults_of, shape_fault, show
from windtunnel.catalog.format import Section, kind_of, listed, real, refuse
from windtunnel.errors import FormatError

DEEPEST = 6
"""Levels a value may be nested."""
LONGEST = 4096
"""Characters of a text, and entries of a list."""
LARGEST = 2**31
MOST_CHANGES = 64
MOST_PROPOSALS = 12


def _plain(value: object, depth: int = 0) -> object:
    """A value as JSON has it, of a size that a job file could have."""
    if depth > DEEPEST:
        raise refuse("is nested too deeply", f"use at most {DEEPEST} levels")
    if isinstance(value, str):
        if len(value) > LONGEST or not value.isprintable():
            raise refuse(f"a text of at most {LONGEST} printable characters is due", "shorten it")
    elif isinstance(value, (int, float)):
        if not math.isfinite(value) or abs(value) > LARGEST:
            raise refuse("is no number a job could have", "correct the number")
    elif isinstance(value, (list, tuple, Mapping)):
        if len(value) > LONGEST:
            raise refuse(f"has more than {LONGEST} entries", "shorten it")
        for item in value.items() if isinstance(value, Mapping) else value:
            for part in item if isinstance(value, Mapping) else (item,):
                _plain(part, depth + 1)
    elif value is not None:
        raise refuse(f"a plain value is due, not {kind_of(value)}", "write a number, a text, a list or a mapping")
    return value


def _changes(value: object) -> object:
    if not isinstance(value, Mapping):
        raise refuse(f"a mapping of job paths to values is due, not {kind_of(value)}", 'write {"plan.parallel.tp": 2}')
    if len(value) > MOST_CHANGES:
        raise refuse(f"at most {MOST_CHANGES} changes at once", "change less")
    for path in value:
        if not isinstance(path, str) or not path.isprintable() or len(path) > 200:
            raise refuse(f"{show(path)} is no job path", "write paths such as plan.parallel.tp")
    return _plain(value)


def _axes(value: object) -> object:
    if isinstance(value, Mapping) and not all(isinstance(item, list) and item for item in value.values()):
        raise refuse("every axis is a list of values", 'write {"plan.parallel.tp": [1, 2, 4]}')
    return _changes(value)


_WORDS = (
    "Changes to the job by full path, e.g. {\"plan.parallel.tp\": 2, \"plan.recompute\": {\"policy\": \"block\", "
    "\"num_layers\": 3}}; what is not named stays as in the job. {} is the job itself."
)  # fmt: skip
Changes = Annotated[
    dict[str, Any],
    BeforeValidator(_changes),
    Field(description=_WORDS, json_schema_extra={"maxProperties": MOST_CHANGES}),
]
Axes = Annotated[
    dict[str, list[Any]],
    BeforeValidator(_axes),
    Field(description='Values by job path, e.g. {"plan.parallel.tp": [1, 2, 4]}; their product is the sub-space.'),
]
_CORRECTED = (
    "Rank by the model times what history's gaps have shown, values that no trial had given the benefit of the doubt."
)
Words = Annotated[StrictStr, Field(max_length=4000)]
Line = Annotated[StrictStr, Field(max_length=600)]
Expected = Annotated[
    float, BeforeValidator(real(-1, 10)), WithJsonSchema({"type": "number", "minimum": -1, "maximum": 10})
]


def _count(most: int) -> Any:
    def check(value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise refuse(f"a whole number from 1 to {most} is due", "correct the number")
        return value

    return Annotated[int, BeforeValidator(check), WithJsonSchema({"type": "integer", "minimum": 1, "maximum": most})]


class EvaluateArguments(Section):
    """Step time, its parts and memory of one plan. By the model it is free, and may also ask what other hardware would
    give (cluster.* and software.* paths). With trial it is tried by the study's oracle: that costs a call and counts.
    """

    changes: Changes
    trial: StrictBool = Field(False, description="Try it by the oracle: costs one call of the budget.")
    hypothesis: Line = Field("", description="With trial: what you expect and why.")
    expect: Expected | None = Field(
        None, description="With trial: expected change of step time against the best so far; -0.06 is 6 % faster."
    )


class MemoryArguments(Section):
    """Peak bytes of the fullest rank of every stage, by what they hold. What makes a plan fit that does not."""

    changes: Changes


class SweepArguments(Section):
    """Every plan of a sub-space by the model, tens of thousands at once: the fastest that fit, and how many there are.
    Axes not named keep the values of ``around``.
    """

    axes: Axes
    around: Changes = Field({}, description="The plan whose values the other axes keep.")
    top: _count(40) = Field(10, description="Plans to list.")  # type: ignore[valid-type]
    corrected: StrictBool = Field(False, description=_CORRECTED)


class AxesArguments(Section):
    """The axes of the study and their values, where the plan stands on each, and the other plan paths that a trial may
    set to any legal value: layouts, recompute lists, group orders, …
    """


class HistoryArguments(Section):
    """Trials so far. best: the fastest; recent: the last; pareto: step time against memory; failed: refusals and why;
    gaps: how far trials were from the model, by value of each axis.
    """

    show: Literal["best", "recent", "pareto", "failed", "gaps"] = "best"
    top: _count(40) = 10  # type: ignore[valid-type]


class SensitivityArguments(Section):
    """A plan with one value of each axis moved to its neighbours: change of step time and whether it fits."""

    changes: Changes


class ExplainArguments(Section):
    """What binds each stage, which single changes would help most, which assumptions matter."""

    changes: Changes


class CompareArguments(Section):
    """Two plans: seconds by part of the step that differ, and bytes."""

    first: Changes
    second: Changes


class StagesArguments(Section):
    """A plan stage by stage: layers, seconds by part, bubble, bytes at the peak and when that is."""

    changes: Changes


class ScratchpadArguments(Section):
    """Notes of your own that last for the whole study. With text they are replaced; without, read."""

    text: Words | None = None


class Proposal(Section):
    """One plan to try."""

    changes: Changes
    hypothesis: Line = Field(description="Why it should help, in a sentence a person can check afterwards.")
    expect: Expected | None = Field(
        None, description="Expected change of step time against the best so far: -0.06 is 6 % faster."
    )


class ProposeArguments(Section):
    """What to try next, and what the last trials taught. Ends this round; you are told the outcomes in the next."""

    proposals: Annotated[tuple[Proposal, ...], Field(max_length=MOST_PROPOSALS), BeforeValidator(listed)] = ()
    plan: Line = Field("", description="What this round is after.")
    learned: Line = Field("", description="What the outcomes so far show that was not known before.")
    stop: StrictBool = Field(False, description="True when nothing more is worth a trial.")


def read_arguments(section: type[Section], given: object) -> dict[str, Any]:
    """What a tool was given, defaults filled in. Raises FormatError: a fault for every argument that is wrong."""
    if not isinstance(given, Mapping):
        raise FormatError(shape_fault(given, "arguments"))
    try:
        return section.model_validate(dict(given)).model_dump()
    except ValidationError as error:
        raise FormatError(faults_of(error, section)) from None


def schema_of(section: type[Section]) -> dict[str, Any]:
    """The JSON Schema of a tool's arguments, without references."""
    found = section.model_json_schema()
    defs = found.pop("$defs", {})
    found.pop("title", None)
    inlined: dict[str, Any] = _inlined(found, defs)
    return inlined


def words_of(section: type[Section]) -> str:
    """What a tool does, on one line."""
    return " ".join((section.__doc__ or "").replace("``", "").split())


def _inlined(value: Any, defs: Mapping[str, Any]) -> Any:
    if isinstance(value, dict):
        if "$ref" in value:
            return _inlined(defs[value["$ref"].rpartition("/")[2]], defs)
        return {key: _inlined(item, defs) for key, item in value.items() if key != "title" or not isinstance(item, str)}
    return [_inlined(item, defs) for item in value] if isinstance(value, list) else value
