"""Studies with a scripted model: the model is a function, everything else is real."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from windtunnel.agent.bench import Bench
from windtunnel.agent.journal import Journal
from windtunnel.agent.llm import Llm
from windtunnel.agent.recorded import Recorded
from windtunnel.agent.thinking import Mind
from windtunnel.agent.words import Secrets
from windtunnel.catalog.dump import job_to_mapping
from windtunnel.catalog.jobs import load_job
from windtunnel.catalog.rates import rates
from windtunnel.job import Job
from windtunnel.projection.project import project
from windtunnel.search.mandate import within
from windtunnel.search.objective import goal
from windtunnel.search.oracle import Projecting
from windtunnel.search.proposers import PROPOSERS, Ground
from windtunnel.search.proposers.turns import Turn
from windtunnel.search.screen import Screen
from windtunnel.search.space import Space, default_space
from windtunnel.search.study import Study
from windtunnel.store.journal import InMemory
from windtunnel.store.notebook import Loose, Notebook

BASE: dict[str, Any] = {
    "model": "llama3.1-8b",
    "cluster": {"accelerator": "h100-sxm-80gb", "num_accelerators": 8},
    "software": {"framework": "megatron-core", "date": "2025-06"},
    "plan": {
        "parallel": {"tp": 2, "pp": 2},
        "batch": {"micro_batch_size": 1, "global_batch_size": 32, "sequence_length": 4096},
    },
}
NARROW = {
    "plan.parallel.tp": (1, 2, 4),
    "plan.parallel.pp": (1, 2, 4),
    "plan.batch.micro_batch_size": (1, 2),
    "plan.pipeline.schedule": ("1f1b", "interleaved_1f1b"),
    "plan.pipeline.virtual_stages": (1, 2),
    "plan.recompute": ({"policy": "none"}, {"policy": "full"}),
}
Function = Callable[[list[ModelMessage], AgentInfo], Any]


def load(changes: Mapping[str, Any]) -> Job:
    return load_job(BASE, set=dict(changes))


def vary(changes: Mapping[str, Any]) -> Job:
    return load_job(BASE, set=dict(changes), repairs=False)


def narrow_space(job: Job) -> Space:
    return default_space(job).pinned(NARROW)


def bench_of(**other: Any) -> Bench:
    job = load({})
    parts: dict[str, Any] = {"space": narrow_space(job), "goal": goal(["throughput"], job)}
    return Bench(job=job, load=load, vary=vary, **(parts | other))


@dataclass
class Ran:
    """A study that has ended, and what was said in it."""

    study: Study
    llm: Llm
    notebook: Notebook
    ending: str
    warnings: list[str] = field(default_factory=list)

    @property
    def best(self) -> float:
        assert self.study.best is not None
        assert self.study.best.outcome.step_time is not None
        return self.study.best.outcome.step_time

    def said(self, kind: str) -> list[str]:
        return [note.text for note in self.notebook.notes() if note.kind == kind]


def make_llm(
    function: Function,
    ground: Ground,
    *,
    notebook: Notebook | None = None,
    timeout: float = 20.0,
    choices: bool = False,
    warn: Callable[[str], None] = lambda why: None,
    secrets: Mapping[str, str] | None = None,
    **bench: Any,
) -> Llm:
    """The proposer, its model played by a function."""
    kept = Loose() if notebook is None else notebook
    hidden = Secrets(secrets or {})
    made = bench_of(**({"space": ground.space, "oracle": "simulated"} | bench))
    model = Recorded(FunctionModel(function), "scripted", kept, hidden, timeout)
    return Llm(ground, Mind(model, made, choices=choices), made, Journal(kept, hidden), warn)


def run_study(
    function: Function,
    *,
    first: str | None = "seed",
    seed_calls: int = 12,
    calls: float = 40,
    oracle: Any = None,
    notebook: Notebook | None = None,
    stop: Callable[[], bool] = lambda: False,
    **llm: Any,
) -> Ran:
    """``first`` for some calls and then the model, on the narrow space."""
    job = load({})
    ground = Ground(job=job, space=narrow_space(job), rates=rates())
    kept: Notebook = Loose() if notebook is None else notebook
    warnings: list[str] = []
    proposer = make_llm(
        function,
        ground,
        notebook=kept,
        warn=warnings.append,
        left=lambda: study.most_calls - study.calls,
        stop=stop,
        **llm,
    )
    study = Study(
        proposers=[*([Turn(PROPOSERS[first](ground), seed_calls)] if first else []), proposer],
        oracle=oracle or Projecting(projected=project),
        screen=Screen(vary=within(vary, ground.space), write=dict),
        goal=goal(["throughput"], job),
        journal=InMemory(job_to_mapping),
        most_calls=calls,
    )
    ending = study.run(stop, lambda: None)
    proposer.close()
    return Ran(study=study, llm=proposer, notebook=kept, ending=ending, warnings=warnings)


def said_so_far(messages: list[ModelMessage]) -> int:
    """Answers of the model in this round."""
    return sum(isinstance(message, ModelResponse) for message in messages)


def calling(*calls: tuple[str, Any]) -> ModelResponse:
    return ModelResponse(parts=[ToolCallPart(name, given) for name, given in calls])


def proposing(*changes: Mapping[str, Any], **other: Any) -> ModelResponse:
    proposals = [{"changes": dict(item), "hypothesis": "it should help", "expect": -0.05} for item in changes]
    return calling(("propose", {"proposals": proposals, **other}))


def text(words: str) -> ModelResponse:
    return ModelResponse(parts=[TextPart(words)])


def first_prompt(messages: list[ModelMessage]) -> str:
    return str(messages[0].parts[0].content)  # type: ignore[union-attr]
