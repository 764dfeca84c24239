"""Reports of studies: what they hold, and that no text of a stranger becomes anything but text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from windtunnel.report.blocks import Figure, Heading, Items, Paragraph, Table
from windtunnel.report.drawing import Dot, Line, Word
from windtunnel.report.figures import visible
from windtunnel.report.html_page import html_page
from windtunnel.report.markdown import escaped, markdown
from windtunnel.report.search_plot import search_plot
from windtunnel.report.story import story
from windtunnel.report.svg import svg
from windtunnel.search.trial import Outcome, Trial

HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "[here](javascript:alert(1))",
    "![](http://example.org/pixel.png)",
    "see https://example.org/?q=1 and www.example.org",
    "| a | b |\n|---|---|\n| c | d |",
    "# head\n\n- item\n1. one\n> quote\n---\n```\ncode\n```",
    "<!-- <b>--><b>bold</b>",
    "\x1b[31mred\x1b[0m \x00 \u202etxt.exe \u2066",
    "]]></title></style></svg><script>alert(1)</script>",
    "&lt;b&gt; $x$ ~~gone~~ *a* _b_ `c` \\",
    "x" * 100_000,
]


def trial(number: int, step: float | None, reason: str = "why not", **outcome: Any) -> Trial:
    status = outcome.pop("status", "ok" if step else "crashed")
    values = (step,) if step else ()
    found = Outcome(status=status, step_time=step, peak_device=2**30, **outcome)
    return Trial(
        number=number,
        proposer="seed",
        reason=reason,
        changes={"plan.parallel.tp": number},
        outcome=found,
        values=values,
    )


def answer(**study: Any) -> dict[str, Any]:
    """The least an answer can say."""
    told = {"ending": "calls", "reused": 3, "margin": 1.25, "oracle": "runs", "best": None} | study
    return {"best": None, "infeasible": {"constraint": "memory", "relaxations": [{"changes": {"x": 1}}]}, "study": told}


def trials(text: str) -> list[Trial]:
    return [
        trial(0, 4.0, text),
        trial(1, None, text, why=text),
        trial(2, 2.0, "halved", seconds=30.0, cost=7200.0),
        trial(3, None, text, status="illegal", why=f"{text}\nsecond rule"),
        trial(4, 3.0),
    ]


def blocks_of(text: str) -> list[Any]:
    notes = [Heading(text), Paragraph(text), Items([text, "an item"]), Table(head=["a", text], rows=[[text, text]])]
    return story(answer(), trials(text), {"Job": text}, notes)


class Tags(HTMLParser):
    """Every tag and attribute of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: repr(text)[:20])
def test_a_page_has_the_same_tags_whatever_it_is_told(text: str) -> None:
    tame, wild = (Tags(html_page(words, blocks_of(words))) for words in ("tame", text))
    assert wild.tags == tame.tags
    assert [name for name, _ in wild.attributes] == [name for name, _ in tame.attributes]
    assert not {"script", "img", "a", "iframe", "link", "object"} & set(wild.tags)
    assert not {name for name, _ in wild.attributes if name.startswith("on") or name in ("href", "src")}


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: repr(text)[:20])
def test_markdown_has_the_same_blocks_whatever_it_is_told(text: str) -> None:
    def kinds(words: str) -> list[str]:
        page = MarkdownIt("gfm-like", {"linkify": False}).parse(markdown(words, blocks_of(words), ["plot.svg"]))
        inline = [child.type for token in page for child in token.children or ()]
        return [token.type for token in page] + [kind for kind in inline if kind not in ("text", "text_special")]

    assert kinds(text) == kinds("tame")
    assert kinds("tame").count("image") == 1


@given(st.text())
def test_escaped_text_reads_as_it_was(text: str) -> None:
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(f"words {escaped(text)}")
    assert [token.type for token in tokens] == ["paragraph_open", "inline", "paragraph_close"]
    read = "".join(child.content for child in tokens[1].children or ())
    assert read.strip() == f"words {visible(text)}".strip()


@pytest.mark.parametrize("address", ["https://example.org", "HTTP://example.org", "www.example.org", "WWW.example.org"])
def test_addresses_are_broken(address: str) -> None:
    assert not re.search(r"://|www\.", escaped(address), re.IGNORECASE)


@given(st.text())
def test_visible_text_is_one_printable_line(text: str) -> None:
    assert visible(text).isprintable()
    assert len(visible(text, 10)) <= 10


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: repr(text)[:20])
def test_a_plot_is_well_formed(text: str) -> None:
    drawn = ElementTree.fromstring(svg(search_plot(trials(text))))
    assert {element.tag.rpartition("}")[2] for element in drawn.iter()} == {
        "svg", "rect", "polyline", "circle", "text", "title",
    }  # fmt: skip


def test_a_plot_has_a_mark_per_call() -> None:
    drawing = search_plot(trials("x"))
    dots = [mark for mark in drawing.marks if isinstance(mark, Dot) and mark.says]
    crosses = [mark for mark in drawing.marks if isinstance(mark, Line) and mark.says]
    assert (len(dots), len(crosses)) == (3, 1)
    assert "best is 2 s" in drawing.label
    assert [mark.text for mark in drawing.marks if isinstance(mark, Word)][:3] == ["2 s", "3 s", "4 s"]
    assert search_plot([]).label == "no plan ran"


def test_a_story_counts_what_was_tried() -> None:
    blocks = story(answer(), trials("because"), {})
    tables = {tuple(block.head)[::3][:2]: block for block in blocks if isinstance(block, Table)}
    said = [text for block in blocks if isinstance(block, Items) for text in block.texts]
    assert "5 proposals, of which 4 took a call and 1 were free" in said
    assert "outcomes: 3 ok, 1 crashed, 1 illegal" in said
    assert "30 s of runs, 2 accelerator-hours" in said
    assert "ended: the calls were spent" in said
    assert [list(row) for row in tables["proposer", "times best"].rows] == [["seed", "5", "4", "2", "2 s"]]
    helped = [list(row) for row in tables["trial", "what changed"].rows]
    assert helped[0][:3] == ["0", "seed", "because"]
    assert helped[1] == ["2", "seed", "halved", "tp=2", "2 s", "+100.0 %"]
    assert [list(row) for row in tables["outcome", "plans"].rows] == [["illegal", "because", "seed: because", "1"]]
    assert sum(isinstance(block, Figure) for block in blocks) == 1


def test_a_story_without_trials_is_the_answer() -> None:
    blocks = story(answer() | {"study": None}, [], {"Job": "small", "Oracle": ""})
    assert [block.text for block in blocks if isinstance(block, Paragraph)] == ["Job: small", "Nothing fits: memory."]
    assert not any(isinstance(block, Figure) for block in blocks)


def test_a_picture_of_pixels_shows_the_marks() -> None:
    image = pytest.importorskip("PIL.Image")
    from io import BytesIO

    from windtunnel.report.png import SCALE, png

    drawing = search_plot(trials(HOSTILE[0]))
    read = image.open(BytesIO(png(drawing)))
    assert (read.format, read.size) == ("PNG", (SCALE * drawing.width, SCALE * drawing.height))
    dot = [mark for mark in drawing.marks if isinstance(mark, Dot) and mark.says][-1]
    red, green, blue = read.getpixel((SCALE * dot.at[0], SCALE * dot.at[1]))
    assert blue > green > red
