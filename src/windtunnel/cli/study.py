"""``windtunnel study``."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Literal

from cyclopts import Parameter

from windtunnel.cli.output import DEFAULT, Output, print_json, print_screen


def study(
    action: Annotated[Literal["show", "top", "export"], Parameter(help="show all, the top, or export JSON lines.")],
    file: Annotated[str, Parameter(help="A file that tune --study wrote.")],
    /,
    *,
    top: Annotated[int, Parameter(help="Trials that top lists.")] = 10,
    output: Output = DEFAULT,
) -> int:
    """What a study has tried: every trial, the best ones, or all of it as one JSON document a line."""
    from windtunnel.report.study import row_document, rows_text
    from windtunnel.store.study_file import StudyFile

    opened = StudyFile.open(file)
    try:
        facts, rows = opened.facts(), list(opened.rows())
    finally:
        opened.close()
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
