"""The answer of a study from its file alone: what was asked, tried and found, projected again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windtunnel.cli.answers import answered, tried
from windtunnel.cli.clock import Clock
from windtunnel.cli.evidence import evidence
from windtunnel.cli.flags import Request
from windtunnel.cli.output import Output
from windtunnel.cli.search import Search
from windtunnel.cli.studies import progress_of
from windtunnel.errors import Fault, FormatError
from windtunnel.report.study import tried_document
from windtunnel.search.objective import goal
from windtunnel.search.space import Axis, Space
from windtunnel.search.trial import FREE
from windtunnel.store.study_file import Row

BUDGET = "1 min"
"""For the questions an answer asks beside the trials, as the fewest accelerators."""


def revisited(
    file: str, facts: Mapping[str, Any], rows: Sequence[Row], top: int, output: Output
) -> tuple[Search, dict[str, Any]]:
    """The search and the document of its answer.

    Raises FormatError for a study that does not say what was asked, MissingError where the measurements it was tried by
    are gone.
    """
    if "asked" not in facts:
        rule = "the study was begun by a windtunnel that did not keep the job as it was asked for"
        raise FormatError(Fault(file, "", rule, "study show and study export read it"))
    asked = Request.from_mapping(facts["asked"])
    asked, believed = evidence(asked, asked.load(), facts.get("profile"), facts.get("anchors", ()), output)
    base = asked.load()
    search = Search(
        asked=asked,
        base=base,
        axes=Space(tuple(Axis(path, tuple(values)) for path, values in facts["space"].items())),
        aim=goal(facts["objective"], base, facts["target"]),
        clock=Clock(BUDGET),
        top=top,
        evidence=believed,
    )
    calls = [row for row in rows if row.trial.outcome.status not in FREE]
    progress = progress_of([(row.trial, row.plan) for row in rows], len(calls), top)
    document = answered(search, progress, None, tried(search, progress))
    return search, document | {"study": tried_document(facts, rows)}
