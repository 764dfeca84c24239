"""Conversations go on where they were left, and can be held again without a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from agent_builders import calling, first_prompt, make_llm, narrow_space, proposing, run_study, said_so_far, vary
from proposer_conformance import conforms

from windtunnel.agent.models import model_of
from windtunnel.agent.recorded import replayed
from windtunnel.agent.words import Secrets
from windtunnel.errors import FormatError, MissingError, WindtunnelError
from windtunnel.store.notebook import Bound, Loose, messages_of, notes_of
from windtunnel.store.study_file import StudyFile


def test_the_model_is_a_proposer_like_any_other() -> None:
    job = vary({})
    conforms(lambda ground: make_llm(walker, ground), job, narrow_space(job), vary)


def walker(messages: list[Any], info: Any) -> Any:
    """A few plans a round, some refused, one by a tool."""
    number = int(first_prompt(messages).split()[1].rstrip(";"))
    if number % 2 and said_so_far(messages) == 0:
        return calling(("evaluate", {"changes": {"plan.parallel.pp": number}, "trial": True}))
    plans = [{"plan.parallel.tp": 2 ** (number % 3), "plan.parallel.pp": pp} for pp in (1, 2, number)]
    return proposing(*plans, stop=number == 9)


def counting(asked: list[int]) -> Any:
    def answers(messages: list[Any], info: Any) -> Any:
        asked.append(1)
        if said_so_far(messages) == 0:
            return calling(("history", {"show": "recent"}))
        return proposing({"plan.parallel.tp": 2 ** (len(asked) % 3)}, learned=f"after {len(asked)}")

    return answers


def test_a_resumed_study_asks_only_for_what_was_not_said(tmp_path: Path) -> None:
    file = StudyFile.create(str(tmp_path / "s.db"), {"job": {}})
    asked: list[int] = []
    first = run_study(counting(asked), first=None, calls=2, notebook=Bound(file))
    before = len(asked)
    assert before >= 2
    again = run_study(counting(asked), first=None, calls=2, notebook=Bound(file))
    assert len(asked) == before, "nothing was asked twice"
    assert [t.changes for t in again.study.trials] == [t.changes for t in first.study.trials]
    more = run_study(counting(asked), first=None, calls=4, notebook=Bound(file))
    assert len(asked) > before, "with more calls the conversation goes on"
    assert [t.changes for t in more.study.trials][: len(first.study.trials)] == [t.changes for t in first.study.trials]
    file.close()


def test_the_journal_of_a_repeated_run_is_written_once(tmp_path: Path) -> None:
    file = StudyFile.create(str(tmp_path / "s.db"), {"job": {}})
    for _ in range(3):
        run_study(walker, first=None, calls=6, notebook=Bound(file))
    kept = [(note.number, note.kind, note.text) for note in notes_of(file)]
    assert len(kept) == len(set(kept))
    assert [number for number, _, _ in kept] == list(range(len(kept)))
    assert len(list(messages_of(file))) == len({item.request for item in messages_of(file)})
    file.close()


def test_a_recorded_conversation_gives_the_same_study(tmp_path: Path) -> None:
    notebook = Loose()
    live = run_study(walker, first=None, calls=8, notebook=notebook)
    lines = [json.dumps({"response": json.loads(item.response)[0]}) for item in notebook.messages]
    (tmp_path / "c.jsonl").write_text("\n".join(lines))
    model = replayed(str(tmp_path / "c.jsonl"))
    assert model.function is not None
    again = run_study(model.function, first=None, calls=8)
    assert [t.changes for t in again.study.trials] == [t.changes for t in live.study.trials]
    assert again.best == live.best
    longer = run_study(replayed(str(tmp_path / "c.jsonl")).function, first=None, calls=50)
    assert longer.said("end"), "a recording that is over stops the search"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "provider and a model"),
        ("gpt", "provider and a model"),
        ("nobody:nothing", "--llm"),
        ("scripted:nobody", "known: expert"),
        ("replay:/no/such/file", "No such file"),
        ("anthropic:claude", "pydantic-ai-slim[anthropic]"),
    ],
)
def test_a_model_that_cannot_be_had_is_a_fault(text: str, words: str) -> None:
    with pytest.raises((FormatError, MissingError)) as error:
        model_of(text, Secrets({}))
    assert words in str(error.value)


def test_a_file_that_is_no_recording_is_a_fault(tmp_path: Path) -> None:
    for content in ("{}", "not json", '{"response": 3}', "[1]"):
        (tmp_path / "c.jsonl").write_text(content)
        with pytest.raises(WindtunnelError, match="no recorded conversation"):
            replayed(str(tmp_path / "c.jsonl"))


def test_a_key_that_is_missing_is_a_fault_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(FormatError, match="OPENAI_API_KEY"):
        model_of("openai-chat:gpt-5", Secrets({}))
