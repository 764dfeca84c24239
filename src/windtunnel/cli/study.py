"""``windtunnel study``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from windtunnel.cli.output import DEFAULT, Output, print_json, print_note, print_screen

if TYPE_CHECKING:
    from windtunnel.store.study_file import Row


def study(
    action: Annotated[
        Literal["show", "top", "export", "report"],
        Parameter(help="show all, the top, export JSON lines, or write a report."),
    ],
    file: Annotated[str, Parameter(help="A file that tune --study wrote.")],
    /,
    *,
    top: Annotated[int, Parameter(help="Trials that top lists.")] = 10,
    out: Annotated[
        str | None, Parameter(metavar="FILE", help="The report: .html or .md; else FILE with .html at its end.")
    ] = None,
    output: Output = DEFAULT,
) -> int:
    """What a study has tried: every trial, the best ones, one JSON document a line, or a report to read."""
    from windtunnel.report.study import row_document, rows_text
    from windtunnel.store.study_file import StudyFile

    opened = StudyFile.open(file)
    try:
        facts, rows = opened.facts(), list(opened.rows())
    finally:
        opened.close()
    if action == "report":
        return _report(out or str(Path(file).with_suffix(".html")), file, facts, rows, max(1, top), output)
    if action == "export":
        sys.stdout.writelines(json.dumps(row_document(row), allow_nan=False) + "\n" for row in rows)
        return 0
    if action == "top":
        rows = sorted((row for row in rows if row.trial.values), key=lambda row: row.trial.rank)[: max(1, top)]
    if output.json:
        print_json({"study": facts, "trials": [row_document(row) for row in rows]})
    else:
        print_screen(rows_text(facts, rows), output)
    return 0


def _report(path: str, file: str, facts: dict[str, Any], rows: list[Row], top: int, output: Output) -> int:
    """The answer as it stands in the file, put together again, and what led to it."""
    from windtunnel.cli.reports import check_report, write_report
    from windtunnel.cli.revisit import revisited

    check_report(path)
    search, document = revisited(file, facts, rows, top, output)
    write_report(path, search, document, [row.trial for row in rows])
    if output.json:
        print_json(document)
    else:
        print_note(f"wrote {path}", output)
    return 0
