"""``windtunnel study``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from windtunnel.cli.output import DEFAULT, Output, print_json, print_note, print_screen

if TYPE_CHECKING:
    from windtunnel.store.notebook import Note
    from windtunnel.store.study_file import Row


def study(
    action: Annotated[
        Literal["show", "top", "export", "report", "journal", "conversation"],
        Parameter(
            help="show all, the top, export JSON lines, write a report; the journal of a language model, or its "
            "answers: what --llm replay:FILE gives again."
        ),
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
    from windtunnel.store.notebook import messages_of, notes_of
    from windtunnel.store.study_file import StudyFile

    opened = StudyFile.open(file)
    try:
        facts, rows, notes = opened.facts(), list(opened.rows()), list(notes_of(opened))
        messages = list(messages_of(opened)) if action == "conversation" else []
    finally:
        opened.close()
    if action == "report":
        return _report(out or str(Path(file).with_suffix(".html")), file, facts, rows, notes, max(1, top), output)
    if action == "journal":
        from windtunnel.report.journal import journal_text, note_document

        if output.json:
            print_json({"journal": [note_document(note) for note in notes]})
        else:
            print_screen(journal_text(notes), output)
        return 0
    if action == "conversation":
        for item in messages:
            asked, (response,) = json.loads(item.asked), json.loads(item.response)
            sys.stdout.write(json.dumps({"model": item.model, "asked": asked, "response": response}) + "\n")
        return 0
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


def _report(
    path: str, file: str, facts: dict[str, Any], rows: list[Row], notes: list[Note], top: int, output: Output
) -> int:
    """The answer as it stands in the file, put together again, and what led to it."""
    from windtunnel.cli.reports import check_report, write_report
    from windtunnel.cli.revisit import revisited
    from windtunnel.report.journal import journal_blocks

    check_report(path)
    search, document = revisited(file, facts, rows, top, output)
    write_report(path, search, document, [row.trial for row in rows], journal_blocks(notes))
    if output.json:
        print_json(document)
    else:
        print_note(f"wrote {path}", output)
    return 0
