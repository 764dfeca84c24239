"""The journal in a report and on a screen, whatever is written in it."""

from __future__ import annotations

from windtunnel.report.html_page import html_page
from windtunnel.report.journal import journal_blocks, journal_text
from windtunnel.report.markdown import markdown
from windtunnel.store.notebook import Note

HOSTILE = "<script>alert(1)</script> | `x` [a](http://evil) \x1b[31m"


def notes(words: str = "fewer stages") -> list[Note]:
    said = [
        ("lesson", words, None, {}),
        ("plan", words, None, {}),
        ("hypothesis", words, 4, {"changes": {"plan.parallel.tp": 2}, "before": {}, "expect": -0.06}),
        ("outcome", "1.2 s", 4, {"step_time": 1.2, "change": -0.04, "held": True}),
        ("hypothesis", words, 5, {"changes": {"plan.parallel.tp": 3}, "before": {}, "expect": None}),
        ("refused", "tp must divide heads", 5, {"repairs": ["set plan.parallel.tp = 2"]}),
        ("warning", words, None, {}),
        ("end", "converged", None, {}),
    ]
    return [
        Note(number=k, kind=kind, text=text, trial=trial, data=data) for k, (kind, text, trial, data) in enumerate(said)
    ]


def test_a_hypothesis_stands_beside_what_came() -> None:
    page = markdown("t", journal_blocks(notes()), [])
    (row,) = (line for line in page.splitlines() if line.startswith("| 4 "))
    assert [cell.strip() for cell in row.strip("|").split("|")] == [
        "4",
        "fewer stages",
        "tp=2",
        "-6.0 %",
        "1.2 s, -4.0 %",
        "yes",
    ]
    (refused,) = (line for line in page.splitlines() if line.startswith("| 5 "))
    assert "refused: tp must divide heads" in refused
    assert "1 of 1 hypotheses with a figure held" in page
    assert "end: converged" in page
    assert journal_blocks([]) == []


def test_what_a_model_writes_cannot_become_part_of_a_page() -> None:
    blocks = journal_blocks(notes(HOSTILE))
    html, page = html_page("t", blocks), markdown("t", blocks, [])
    assert "<script>" not in html
    assert "<script>" not in page
    assert "](http" not in page.replace("\\](", "")
    assert "\x1b" not in html + page


def test_the_screen_shows_no_control_characters() -> None:
    from rich.console import Console

    console = Console(width=100, markup=False, highlight=False, force_terminal=False)
    with console.capture() as shown:
        console.print(journal_text(notes(HOSTILE)))
    assert "\x1b" not in shown.get()
    assert "refused" in shown.get()
