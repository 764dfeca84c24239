"""``tune --proposer …,llm`` at a terminal: scripted models, and endpoints on the loopback that behave in many ways."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

AXES = {
    "plan.parallel.tp": "1,2,4",
    "plan.parallel.pp": "1,2",
    "plan.batch.micro_batch_size": "1",
    "plan.recompute": "{policy: none},{policy: full}",
    "plan.pipeline.schedule": "1f1b",
    "plan.pipeline.virtual_stages": "1",
    "plan.pipeline.layout": "even",
    "plan.overlap.p2p": "false",
    "plan.overlap.tp_comm": "false",
    "plan.sharding.shard_size": "divisors",
    "plan.offload.optimizer": "none",
}
NARROW = tuple(word for path, values in AXES.items() for word in ("--vary", f"{path}={values}"))
KEY = "sk-live-9f8e7d6c5b4a3210"
Answer = Callable[[Any], tuple[int, str, str]]


class Endpoint:
    """A server on the loopback that answers as it is told; what it was sent is kept."""

    def __init__(self) -> None:
        self.answer: Answer = lambda request: (200, "application/json", "{}")
        self.requests: list[Any] = []
        self.headers: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                sent = json.loads(self.rfile.read(int(self.headers["content-length"])))
                outer.requests.append(sent)
                outer.headers.append(str(self.headers))
                code, kind, body = outer.answer(sent)
                try:
                    self.send_response(code)
                    self.send_header("content-type", kind)
                    self.send_header("content-length", str(len(body.encode())))
                    self.end_headers()
                    self.wfile.write(body.encode())
                except OSError:
                    return

            def log_message(self, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    made = Endpoint()
    monkeypatch.setenv("OPENAI_BASE_URL", made.url)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    yield made
    made.close()


def said(message: Any) -> tuple[int, str, str]:
    whole = {"id": "1", "object": "chat.completion", "created": 1, "model": "stub",
             "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", **message}}],
             "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}  # fmt: skip
    return 200, "application/json", json.dumps(whole)


def called(name: str, given: Any) -> tuple[int, str, str]:
    call = {"id": "c1", "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
    return said({"content": None, "tool_calls": [call]})


def study(cli: Any, job_file: str, *words: str, model: str = "openai-chat:stub", seed: int = 6) -> Any:
    return cli("tune", job_file, *NARROW, "--proposer", f"seed:{seed},llm", "--llm", model, "--calls", "14", *words)


def test_a_scripted_model_leaves_a_journal_and_a_conversation(cli: Any, job_file: str, tmp_path: Path) -> None:
    file, page = str(tmp_path / "s.db"), tmp_path / "r.md"
    done = study(cli, job_file, "--study", file, "--report", str(page), "--json", model="scripted:expert", seed=1)
    assert done.code == 0
    assert done.document["study"]["proposers"][:2] == ["seed", "llm"]
    text = page.read_text()
    assert "## The journal of the language model" in text
    assert "(the model's words)" in text
    notes = cli("study", "journal", file, "--json").document["journal"]
    kinds = {note["kind"] for note in notes}
    assert {"plan", "hypothesis", "outcome", "end"} <= kinds
    for note in notes:
        if note["kind"] == "outcome" and note["data"]["change"] is not None:
            assert note["data"]["step_time"] > 0
    assert "hypothesis" in cli("study", "journal", file).out
    assert cli("study", "report", file, "--out", str(tmp_path / "again.html")).code == 0
    assert "The journal of the language model" in (tmp_path / "again.html").read_text()
    recording = tmp_path / "c.jsonl"
    recording.write_text(cli("study", "conversation", file).out)
    again = study(cli, job_file, "--json", model=f"replay:{recording}", seed=1).document
    assert again["best"] == done.document["best"]
    assert again["study"]["trials"] == done.document["study"]["trials"]


def test_a_resumed_study_goes_on_with_the_conversation(
    cli: Any, job_file: str, tmp_path: Path, endpoint: Endpoint
) -> None:
    plans = iter([{"plan.parallel.tp": 4}, {"plan.parallel.pp": 1}, {"plan.parallel.tp": 1}] * 5)
    endpoint.answer = lambda request: called("propose", {"proposals": [{"changes": next(plans), "hypothesis": "h"}]})
    words = ("--study", str(tmp_path / "s.db"), "--json")
    first = study(cli, job_file, *words)
    asked = len(endpoint.requests)
    assert asked >= 2
    again = study(cli, job_file, *words, "--resume")
    assert len(endpoint.requests) == asked
    assert again.document["best"] == first.document["best"]
    assert again.document["study"] == first.document["study"] | {"reused": first.document["study"]["calls"]}


def test_an_endpoint_is_told_what_the_agent_is_for(cli: Any, job_file: str, endpoint: Endpoint) -> None:
    def answer(request: Any) -> tuple[int, str, str]:
        if any(message["role"] == "tool" for message in request["messages"]):
            return called("propose", {"stop": True})
        return called("evaluate", {"changes": {"plan.parallel.tp": 4}})

    endpoint.answer = answer
    assert study(cli, job_file).code == 0
    first, second = endpoint.requests[:2]
    names = {tool["function"]["name"] for tool in first["tools"]}
    assert names == {"evaluate", "memory", "sweep", "axes", "history", "sensitivity", "explain", "compare", "stages",
                     "scratchpad", "propose"}  # fmt: skip
    words = json.dumps(first["messages"])
    assert "Oracle: simulated" in words
    assert "llama3.1-8b" in words
    tool = next(message for message in second["messages"] if message["role"] == "tool")
    assert json.loads(tool["content"])["step_time_s"] > 0


WAYS: dict[str, Answer] = {
    "an error": lambda request: (500, "application/json", '{"error": {"message": "down"}}'),
    "no such model": lambda request: (404, "application/json", '{"error": {"message": "no such model"}}'),
    "a page": lambda request: (200, "text/html", "<html>Sign in</html>"),
    "nothing": lambda request: (200, "application/json", ""),
    "an empty document": lambda request: (200, "application/json", "{}"),
    "half a document": lambda request: (200, "application/json", '{"choices": [{"mess'),
    "a wrong shape": lambda request: (200, "application/json", '{"choices": "none", "usage": []}'),
    "no choices": lambda request: (200, "application/json", '{"id":"1","choices":[],"created":1,"model":"m"}'),
    "refused, with the key": lambda request: (401, "application/json", json.dumps({"error": {"message": KEY}})),
    "prose": lambda request: said({"content": "I would use tp 8. " * 50}),
    "broken arguments": lambda request: said({"content": None, "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "propose", "arguments": "{"}}]}),
    "a megabyte": lambda request: said({"content": "x" * 1_000_000}),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_an_endpoint_that_misbehaves_costs_one_warning(
    way: str, cli: Any, job_file: str, tmp_path: Path, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_MAX_RETRIES", "0")
    endpoint.answer = WAYS[way]
    done = study(cli, job_file, "--study", str(tmp_path / "s.db"), "--report", str(tmp_path / "r.md"), "--json")
    assert done.code == 0
    assert done.err.count("warning: --llm openai-chat:stub cannot be used") == 1
    assert done.document["study"]["proposers"] == ["seed", "llm", "exhaustive", "seed"]
    assert done.document["certificate"] == "exhaustive"
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert KEY.encode() not in kept + (done.out + done.err).encode()
    assert "Traceback" not in done.err


def test_an_endpoint_that_is_not_there_costs_one_warning(
    cli: Any, job_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    done = study(cli, job_file, "--json")
    assert done.code == 0
    assert done.err.count("warning:") == 1
    assert KEY not in done.err + done.out
    quiet = study(cli, job_file, "--json", "--quiet")
    assert quiet.err == ""
    assert quiet.document["best"] == done.document["best"]


def test_an_endpoint_that_hangs_is_left(cli: Any, job_file: str, endpoint: Endpoint) -> None:
    def hangs(request: Any) -> tuple[int, str, str]:
        time.sleep(20)
        return said({"content": ""})

    endpoint.answer = hangs
    done = study(cli, job_file, "--llm-timeout", "1 s", "--json")
    assert done.code == 0
    assert "no answer within 1 s" in done.err


def test_an_endpoint_that_sends_the_key_back_does_not_get_it_kept(
    cli: Any, job_file: str, tmp_path: Path, endpoint: Endpoint
) -> None:
    plans = iter([{"plan.parallel.tp": 4}, {"plan.parallel.pp": 1}])

    def echoes(request: Any) -> tuple[int, str, str]:
        changes = next(plans, None)
        proposals = [] if changes is None else [{"changes": changes, "hypothesis": f"with {KEY}"}]
        return called(
            "propose", {"proposals": proposals, "learned": KEY, "plan": f"plan {KEY}", "stop": changes is None}
        )

    endpoint.answer = echoes
    done = study(cli, job_file, "--study", str(tmp_path / "s.db"), "--report", str(tmp_path / "r.html"))
    assert f"Bearer {KEY}" in endpoint.headers[0], "the endpoint itself was given the key"
    journal = cli("study", "journal", str(tmp_path / "s.db"))
    exported = (
        cli("study", "export", str(tmp_path / "s.db")).out + cli("study", "conversation", str(tmp_path / "s.db")).out
    )
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert "***" in journal.out
    assert KEY not in done.out + done.err + journal.out + exported
    assert KEY.encode() not in kept


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--proposer", "seed,llm"), "--llm"),
        (("--proposer", "seed", "--llm", "openai:x"), "--proposer"),
        (("--proposer", "seed,llm", "--llm", "nobody:x"), "--llm"),
        (("--proposer", "seed,llm", "--llm", "replay:/no/such"), "replay:/no/such"),
        (("--proposer", "seed,llm", "--llm", "scripted:expert", "--llm-timeout", "soon"), "--llm-timeout"),
        (("--proposer", "seed:x"), "--proposer"),
        (("--proposer", "seed:"), "--proposer"),
    ],
)
def test_bad_words_about_models_are_named(cli: Any, job_file: str, words: tuple[str, ...], named: str) -> None:
    done = cli("tune", job_file, *NARROW, *words)
    assert done.code == 2
    assert named in done.err


def test_the_model_alone_is_followed_by_seed(cli: Any, job_file: str, endpoint: Endpoint) -> None:
    endpoint.answer = lambda request: called("propose", {"stop": True})
    done = cli("tune", job_file, *NARROW, "--proposer", "llm", "--llm", "openai-chat:stub", "--calls", "20", "--json")
    seeded = cli("tune", job_file, *NARROW, "--proposer", "seed", "--calls", "20", "--json")
    assert done.document["study"]["proposers"] == ["llm", "seed"]
    assert done.document["best"]["step_time"] <= seeded.document["best"]["step_time"]
