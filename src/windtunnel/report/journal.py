"""The journal of a language model: what it was after, what it expected, what came, what it learnt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from windtunnel.report.blocks import Block, Heading, Items, Paragraph, Table
from windtunnel.report.figures import differences, signed_percent, visible
from windtunnel.report.tables import table
from windtunnel.store.notebook import Note

HEAD = ("trial", "hypothesis (the model's words)", "what changed", "expected", "came", "held")
MOST = 60
"""Changes and outcomes are cut to so many characters on a screen."""


def journal_blocks(notes: Sequence[Note]) -> list[Block]:
    """Sections of a report; none where no model took part."""
    if not notes:
        return []
    return [Heading("The journal of the language model"), *_rounds(notes), *_endings(notes)]


def journal_text(notes: Sequence[Note]) -> RenderableType:
    """The journal on a screen."""
    shown: list[RenderableType] = []
    for block in journal_blocks(notes):
        if isinstance(block, Heading | Paragraph):
            shown.append(Text(visible(block.text)))
        elif isinstance(block, Items):
            shown += [Text(f"- {visible(text)}") for text in block.texts]
        elif isinstance(block, Table):
            cut = [[_cut(visible(cell)) for cell in row] for row in block.rows]
            shown.append(table(list(block.head), cut, left=block.left))
    return Group(*shown) if shown else Text("no language model took part in this study")


def _cut(text: str) -> str:
    return text if len(text) <= MOST else text[: MOST - 1] + "…"


def note_document(note: Note) -> dict[str, Any]:
    """One line of an export."""
    return {"kind": note.kind, "text": note.text, "trial": note.trial, "data": dict(note.data), "at": note.at}


def _rounds(notes: Sequence[Note]) -> Iterator[Block]:
    """Every plan of the model with the hypotheses it led to; what was learnt stands before the plan it led to."""
    rows: list[list[str]] = []
    for note in notes:
        if note.kind in ("plan", "lesson"):
            if rows:
                yield _table(rows)
                rows = []
            yield Paragraph(f"{'After' if note.kind == 'plan' else 'Learnt'}: {note.text}")
        elif note.kind == "hypothesis":
            rows.append(_row(note, _outcome(note, notes)))
    if rows:
        yield _table(rows)


def _table(rows: list[list[str]]) -> Table:
    return Table(head=HEAD, rows=rows, left=3)


def _outcome(note: Note, notes: Sequence[Note]) -> Note | None:
    """What came of a hypothesis: the next outcome or refusal of its trial."""
    found = (
        item
        for item in notes
        if item.number > note.number and item.trial == note.trial and item.kind in ("outcome", "refused")
    )
    return next(found, None)


def _row(note: Note, outcome: Note | None) -> list[str]:
    expected, came, held = note.data.get("expect"), "", ""
    if outcome is not None and outcome.kind == "refused":
        came, held = f"refused: {outcome.text}", _repairs(outcome.data)
    elif outcome is not None:
        change = outcome.data.get("change")
        came = outcome.text if change is None else f"{outcome.data['step_time']:.4g} s, {signed_percent(change)}"
        held = {True: "yes", False: "no", None: ""}[outcome.data.get("held")]
    return [
        "" if note.trial is None else str(note.trial),
        note.text,
        differences(note.data.get("changes", {}), note.data.get("before", {})),
        "" if expected is None else signed_percent(expected),
        came,
        held,
    ]


def _repairs(data: Mapping[str, Any]) -> str:
    found = data.get("repairs") or ()
    return f"{len(found)} repairs were told" if found else ""


def _endings(notes: Sequence[Note]) -> Iterator[Block]:
    tried = [note for note in notes if note.kind == "outcome" and note.data.get("held") is not None]
    held = sum(bool(note.data["held"]) for note in tried)
    said = [f"{held} of {len(tried)} hypotheses with a figure held"] if tried else []
    said += [f"{note.kind}: {note.text}" for note in notes if note.kind in ("warning", "end")]
    if said:
        yield Items(said)
