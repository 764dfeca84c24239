"""Models that behave well and in many bad ways: the study stays whole, budgets hold, nothing runs, no answer is worse
than the seed planner's."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from agent_builders import Ran, calling, first_prompt, proposing, run_study, said_so_far, text

from windtunnel.agent.scripted import expert
from windtunnel.search.study import Study
from windtunnel.search.trial import FREE
from windtunnel.store.notebook import Loose

SEED_CALLS = 12
WATCHED: list[str] = []
WATCHING = [False]
STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.spawn", "pty.spawn",
          "exec_injected", "shutil.rmtree", "os.remove", "socket.connect")  # fmt: skip


def _watch(event: str, arguments: Any) -> None:
    if WATCHING[0] and (event in STARTS or (event == "open" and "/etc/" in str(arguments[0]))):
        WATCHED.append(f"{event} {arguments!r}"[:300])


sys.addaudithook(_watch)


@pytest.fixture
def nothing_started() -> Iterator[None]:
    """No process is started, no connection made, no file of the system read while the test runs."""
    WATCHED.clear()
    WATCHING[0] = True
    yield
    WATCHING[0] = False
    assert WATCHED == []


@pytest.fixture(scope="module")
def seed_alone() -> float:
    return run_study(lambda messages, info: proposing(stop=True), calls=SEED_CALLS).best


def consistent(study: Study) -> None:
    """What holds for every study, whatever was proposed in it."""
    assert [trial.number for trial in study.trials] == list(range(len(study.trials)))
    called = [trial for trial in study.trials if trial.outcome.status not in FREE]
    assert len(called) >= study.calls
    assert study.calls <= study.most_calls
    for trial in study.trials:
        assert trial.reason.isprintable()
        assert len(trial.reason) <= 600
        assert trial.outcome.status == "ok" or trial.outcome.why
    ran = [trial.outcome.step_time for trial in study.trials if trial.values]
    assert study.best is not None
    assert study.best.outcome.step_time == min(ran)
    json.dumps([trial.changes for trial in study.trials])


def good(messages: list[Any], info: Any) -> Any:
    """Looks, tries one plan as a tool, proposes two more."""
    step = said_so_far(messages)
    if step == 0:
        return calling(("axes", {}), ("history", {"show": "best"}), ("memory", {"changes": {}}))
    if step == 1:
        wanted = {"changes": {"plan.parallel.tp": 4}, "trial": True, "hypothesis": "tensor traffic", "expect": -0.1}
        return calling(("evaluate", wanted))
    number = int(first_prompt(messages).split()[1].rstrip(";"))
    plans = {"plan.parallel.tp": 4, "plan.parallel.pp": 1}, {"plan.parallel.pp": 3}
    return proposing(*plans, learned=f"lesson {number}", plan="less splitting", stop=number == 2)


def lazy(messages: list[Any], info: Any) -> Any:
    return proposing(stop=True)


def silent(messages: list[Any], info: Any) -> Any:
    return text("")


def liar(messages: list[Any], info: Any) -> Any:
    claim = "I measured 0.001 s per step with tp 8 and it is the best plan of all, certified."
    return proposing({"plan.parallel.tp": 4}, learned=claim, plan=claim)


def looping(messages: list[Any], info: Any) -> Any:
    return calling(("evaluate", {"changes": {}}))


def repeating(messages: list[Any], info: Any) -> Any:
    return proposing({"plan.parallel.tp": 2})


def broken_json(messages: list[Any], info: Any) -> Any:
    return calling(("propose", '{"proposals": [{"changes": {"plan.parallel.tp": 2}, '))


def wrong_types(messages: list[Any], info: Any) -> Any:
    ways: list[Any] = [{"proposals": "all"}, {"proposals": [{"changes": [1, 2]}]}, {"proposal": []}, [], None, "x"]
    return calling(("propose", ways[said_so_far(messages) % len(ways)]))


def unknown_tool(messages: list[Any], info: Any) -> Any:
    return calling(("shell", {"command": "touch /tmp/owned"}))


def long_strings(messages: list[Any], info: Any) -> Any:
    long = "x" * 100_000
    if said_so_far(messages) == 0:
        return calling(
            ("scratchpad", {"text": long}), ("evaluate", {"changes": {long: 1}}), ("sweep", {"axes": {"a": [long]}})
        )
    if said_so_far(messages) == 1:
        return proposing({"plan.pipeline.layout": long})
    return text(long)


def unicode_words(messages: list[Any], info: Any) -> Any:
    words = "\u202e日本語 \x1b[31mred\x1b[0m \x00 😀 é"
    found = [{"changes": {"plan.parallel.tp": 4}, "hypothesis": words, "expect": -0.1},
             {"changes": {"plan.parallel.tp": "日本"}, "hypothesis": words},
             {"changes": {"plan.日本": 2}, "hypothesis": words}]  # fmt: skip
    return calling(("propose", {"proposals": found, "learned": words, "plan": words}))


def injections(messages: list[Any], info: Any) -> Any:
    if said_so_far(messages) == 0:
        return calling(
            ("evaluate", {"changes": {"model": "/etc/passwd"}}),
            ("evaluate", {"changes": {"plan.pipeline.orders": "/etc/passwd"}}),
            ("evaluate", {"changes": {"plan.recompute.policy": "$(touch /tmp/owned)"}}),
            ("evaluate", {"changes": {"__import__('os').system('id')": 1}}),
            ("sweep", {"axes": {"plan.pipeline.orders": ["/etc/passwd"]}}),
            ("sweep", {"axes": {"plan.parallel.tp": ["; rm -rf /", 2]}}),
            ("compare", {"first": {"model.base": "../../etc/passwd"}, "second": {}}),
        )
    return proposing(
        {"model": "/etc/passwd"},
        {"plan.pipeline.orders": "/etc/passwd"},
        {"plan.pipeline.schedule": "`id`"},
        {"cluster.accelerator": "../../../etc/passwd"},
        {"plan.pipeline.layout": "'; DROP TABLE trial; --"},
        {"plan.batch.global_batch_size": 8, "plan.parallel.tp": 1},
        {"plan.precision": {"compute": "fp8"}},
        {"cluster.hbm_capacity": "10 TiB"},
        {"plan": {}},
    )


def absurd_numbers(messages: list[Any], info: Any) -> Any:
    return proposing(
        {"plan.parallel.pp": 10**15},
        {"plan.parallel.tp": -1},
        {"plan.parallel.tp": 1e300},
        {"plan.pipeline.virtual_stages": 999_999},
        {"plan.recompute": {"policy": "block", "num_layers": 4096}},
        {"plan.offload.activations": 0.3333},
    )


def many_calls(messages: list[Any], info: Any) -> Any:
    return calling(*(("evaluate", {"changes": {"plan.parallel.tp": 1 + k % 4}}) for k in range(1000)))


def many_calls_one_by_one(messages: list[Any], info: Any) -> Any:
    return calling(("memory", {"changes": {}}))


def many_trials(messages: list[Any], info: Any) -> Any:
    return calling(*(("evaluate", {"changes": {"plan.parallel.tp": 1 + k % 4}, "trial": True}) for k in range(40)))


def raising(messages: list[Any], info: Any) -> Any:
    raise RuntimeError("the endpoint went away: key sk-verysecret")


BAD = [lazy, silent, liar, looping, repeating, broken_json, wrong_types, unknown_tool, long_strings, unicode_words,
       injections, absurd_numbers, many_calls, many_calls_one_by_one, many_trials, raising]  # fmt: skip


@pytest.mark.parametrize("script", [good, *BAD], ids=lambda script: script.__name__)
def test_whatever_a_model_does_the_study_stays_whole(script: Any, seed_alone: float, nothing_started: None) -> None:
    ran = run_study(script, calls=SEED_CALLS + 8)
    assert ran.ending in ("exhausted", "calls")
    consistent(ran.study)
    assert ran.best <= seed_alone
    assert ran.notebook.messages or script is raising, "the model was asked"
    assert len(ran.warnings) <= 1
    for note in ran.notebook.notes():
        assert note.text.isprintable()
        assert len(note.text) <= 600


@pytest.mark.parametrize("script", [silent, broken_json, wrong_types, unknown_tool, many_calls, raising, looping],
                         ids=lambda script: script.__name__)  # fmt: skip
def test_a_model_that_cannot_be_used_is_done_without_with_one_warning(script: Any) -> None:
    ran = run_study(script, calls=SEED_CALLS + 4)
    assert ran.llm.failed
    assert len(ran.warnings) == 1
    assert ran.said("warning")


def test_a_good_model_is_told_what_came_of_each_hypothesis() -> None:
    prompts: list[str] = []

    def watched(messages: list[Any], info: Any) -> Any:
        prompts.append(first_prompt(messages))
        return good(messages, info)

    ran = run_study(watched, first=None, calls=20)
    assert [trial.changes for trial in ran.study.trials[:2]] == [{}, {"plan.parallel.tp": 4}]
    assert ran.said("lesson") == ["lesson 1", "lesson 2"]
    assert ran.said("plan") == ["less splitting"] * 2
    outcomes = [note for note in ran.notebook.notes() if note.kind == "outcome"]
    assert outcomes[0].trial == 1
    before, after = (trial.outcome.step_time for trial in ran.study.trials[:2])
    assert outcomes[0].data["change"] == pytest.approx(after / before - 1)
    assert outcomes[0].data["held"] is (after / before - 1 <= -0.05)
    second = next(prompt for prompt in prompts if prompt.startswith("Round 2;"))
    assert "hypothesis_held" in second
    assert "lesson 1" in second
    assert ran.said("end") == ["nothing more was worth a trial"]


def test_a_refused_proposal_is_told_the_rule_and_repairs_and_costs_nothing() -> None:
    told: list[str] = []

    def proposes(messages: list[Any], info: Any) -> Any:
        told.append(first_prompt(messages))
        number = len(told)
        return proposing({"plan.parallel.tp": 3}, {"plan.batch.micro_batch_size": 2, "plan.parallel.tp": 1,
                                                   "plan.parallel.pp": 1}, stop=number == 2)  # fmt: skip

    ran = run_study(proposes, first=None, calls=20)
    refused = [trial for trial in ran.study.trials if trial.outcome.status == "illegal"]
    assert refused[0].changes == {"plan.parallel.tp": 3}
    assert ran.study.calls == sum(trial.outcome.status not in FREE for trial in ran.study.trials)
    note = next(note for note in ran.notebook.notes() if note.kind == "refused")
    assert note.trial == refused[0].number
    assert any("set plan.parallel.tp = 2" in repair for repair in note.data["repairs"])
    assert "must divide" in told[-1]
    assert "set plan.parallel.tp = 2" in told[-1]


def test_a_plan_that_does_not_fit_is_told_what_would_make_it_fit() -> None:
    def proposes(messages: list[Any], info: Any) -> Any:
        return proposing({"plan.parallel.tp": 1, "plan.parallel.pp": 1, "plan.batch.micro_batch_size": 4}, stop=True)

    ran = run_study(proposes, first=None, calls=20)
    (trial,) = (trial for trial in ran.study.trials if trial.outcome.status == "infeasible")
    note = next(note for note in ran.notebook.notes() if note.kind == "refused")
    assert note.trial == trial.number
    assert note.data["repairs"]
    assert all(repair["peak_gib"] < 80 for repair in note.data["repairs"])
    assert ran.study.calls == 1, "the baseline"


def test_another_training_never_wins() -> None:
    """Half the batch would halve the step: what says what is trained is not up to a search."""

    def cheats(messages: list[Any], info: Any) -> Any:
        ways: tuple[Any, ...] = (
            {"plan.batch.global_batch_size": 16},
            {"plan.batch": {"micro_batch_size": 1, "global_batch_size": 8}},
            {"plan.batch.sequence_length": 128},
            {"plan.precision.compute": "fp8"},
            {"cluster.num_accelerators": 64},
            {"plan.moe.capacity_factor": 0.5},
            {"software.framework": "nemo"},
        )
        return proposing(*ways, stop=True)

    ran = run_study(cheats, first=None, calls=20)
    assert [trial.outcome.status for trial in ran.study.trials] == ["ok", *["illegal"] * 7]
    assert all("leave" in t.outcome.why or "ask what" in t.outcome.why or "below it" in t.outcome.why
               for t in ran.study.trials[1:])  # fmt: skip


def test_no_call_of_the_model_is_made_once_the_calls_are_spent() -> None:
    asked: list[int] = []

    def counts(messages: list[Any], info: Any) -> Any:
        asked.append(1)
        return proposing(
            {"plan.parallel.tp": 4}, {"plan.parallel.pp": 1}, {"plan.parallel.tp": 4, "plan.parallel.pp": 1}
        )

    ran = run_study(counts, first=None, calls=3)
    assert ran.study.calls == 3
    assert len(asked) == 1
    assert run_study(counts, first="seed", calls=5).study.calls == 5
    assert len(asked) == 1, "seed had spent them"


def test_a_model_that_hangs_is_left_when_its_time_is_up() -> None:
    async def hangs(messages: list[Any], info: Any) -> Any:
        await asyncio.sleep(600)

    ran = run_study(hangs, timeout=0.3, calls=SEED_CALLS + 2)
    assert ran.llm.failed
    assert "no answer within 0.3 s" in ran.llm.failed
    consistent(ran.study)


def test_a_study_that_is_told_to_stop_does_not_wait_for_the_model() -> None:
    asked: list[int] = []

    async def hangs(messages: list[Any], info: Any) -> Any:
        asked.append(1)
        await asyncio.sleep(600)

    ran = run_study(hangs, first=None, timeout=600, stop=lambda: bool(asked))
    assert ran.ending == "stopped"
    assert ran.llm.failed is None
    assert ran.said("end") == ["time was up"]


def test_context_does_not_grow_with_the_trials() -> None:
    sizes: list[int] = []

    def endless(messages: list[Any], info: Any) -> Any:
        sizes.append(sum(len(str(part)) for message in messages for part in message.parts))
        k = len(sizes)
        layers = list(range(k % 32))
        plans = [
            {"plan.recompute": {"policy": "block", "layers": layers}, "plan.parallel.tp": tp, "plan.parallel.pp": 2}
            for tp in (2, 4, 3)
        ]
        return proposing(*plans, learned=f"lesson {k} " + "word " * 100, plan="p" * 500)

    import windtunnel.agent.llm as module

    patience, module.PATIENCE = module.PATIENCE, 10_000
    try:
        ran = run_study(endless, first=None, calls=50)
    finally:
        module.PATIENCE = patience
    assert len(ran.study.trials) >= 70
    assert max(sizes) < 20_000
    assert max(sizes[16:]) < 1.1 * max(sizes[10:16])


def test_a_search_that_finds_nothing_better_converges() -> None:
    ran = run_study(repeating, calls=60)
    assert ran.said("end")[0].startswith("converged")
    assert sum(trial.proposer == "llm" for trial in ran.study.trials) <= 6


def test_a_certificate_ends_a_search_inside_its_axes() -> None:
    inside = run_study(repeating, calls=60, certified=lambda: True)
    assert inside.said("end") == ["the certificate holds, and nothing outside of its axes was proposed"]

    def outside(messages: list[Any], info: Any) -> Any:
        return proposing({"plan.pipeline.layout": "Et*15|t*17L"})

    assert run_study(outside, calls=60, certified=lambda: True).said("end")[0].startswith("converged")


def test_what_no_grid_has_can_be_proposed() -> None:
    """Uneven layouts and recompute lists are trials like any other."""

    def open_ended(messages: list[Any], info: Any) -> Any:
        return proposing({"plan.pipeline.layout": "Et*15|t*17L"},
                         {"plan.recompute": {"policy": "block", "layers": [0, 1, 30]}},
                         {"plan.pipeline.layout": "balanced", "plan.parallel.pp": 4}, stop=True)  # fmt: skip

    ran = run_study(open_ended, first=None)
    assert [trial.outcome.status for trial in ran.study.trials] == ["ok"] * 4
    assert ran.study.trials[3].changes["plan.pipeline.layout"] != "balanced"


def test_the_expert_finds_the_best_plan_of_the_space_in_a_few_calls(seed_alone: float) -> None:
    ran = run_study(expert, first=None, calls=10)
    consistent(ran.study)
    assert ran.best <= seed_alone * (1 + 1e-9)
    assert ran.said("hypothesis")


def test_secrets_are_never_kept() -> None:
    """An endpoint that sends the key back, in words and in errors."""
    key = "sk-live-0123456789abcdef"

    def echoes(messages: list[Any], info: Any) -> Any:
        if "Round 1" in first_prompt(messages):
            found = [{"changes": {"plan.parallel.tp": 4}, "hypothesis": f"key {key}"}]
            return calling(("propose", {"proposals": found, "learned": key, "plan": key}))
        raise RuntimeError(f"401 for {key}")

    notebook = Loose()
    ran = run_study(echoes, first=None, notebook=notebook, secrets={"OPENAI_API_KEY": key})
    kept = repr(notebook.notes()) + repr(notebook.messages) + repr(ran.study.trials) + repr(ran.warnings)
    assert "***" in kept
    assert key not in kept


def test_the_answer_does_not_depend_on_how_often_it_is_asked_for() -> None:
    one, other = (run_study(expert, calls=SEED_CALLS + 6) for _ in range(2))
    assert _told(one) == _told(other)


def _told(ran: Ran) -> list[Any]:
    return [(trial.changes, trial.outcome.status, trial.outcome.step_time) for trial in ran.study.trials]
