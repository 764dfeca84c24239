"""One round of thought: a model asked, its tools answered, until it proposes or wants a trial."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, NativeOutput, StructuredDict, ToolOutput
from pydantic_ai import Tool as ModelTool
from pydantic_ai.exceptions import CallDeferred, ModelAPIError, ModelRetry, UserError
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.usage import UsageLimits

from windtunnel.agent.bench import Bench
from windtunnel.agent.choices import Menu, chosen
from windtunnel.agent.tools import TOOLS, Tool, call
from windtunnel.catalog import tool_format as forms
from windtunnel.errors import FormatError
from windtunnel.projection.choices import Changes

REQUESTS = 16
"""Answers of the model in one round."""
TOOL_CALLS = 32
"""Tool calls of one round that are carried out; further ones are told to come to an end."""
HARD_TOOL_CALLS = 64
"""Tool calls after which a round is given up."""
GLANCE = 0.1
"""Seconds between two looks at the clock while a model thinks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Idea:
    """A plan to try; ``expect`` is the expected change of step time, as a share of the best."""

    changes: Changes
    hypothesis: str
    expect: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Thought:
    """What a round came to."""

    ideas: tuple[Idea, ...] = ()
    plan: str = ""
    learned: str = ""
    stop: bool = False


@dataclass(frozen=True, slots=True)
class Wanted:
    """Trials that the model waits for, by the identity of its calls."""

    ideas: Mapping[str, Idea]


class Unusable(Exception):
    """An answer, or none, that nothing can be made of; ``fatal`` where asking again would not help."""

    def __init__(self, why: str, *, fatal: bool = False) -> None:
        super().__init__(why)
        self.fatal = fatal


class Stopped(Exception):
    """Time was up while the model thought."""


class Mind:
    """A model with the tools of a bench. ``choices``: it picks from a menu instead, for models too small for tools."""

    def __init__(self, model: Model, bench: Bench, *, choices: bool = False) -> None:
        self.choices = choices
        self._bench = bench
        self._model = model
        self._tools = [] if choices else [self._offered(tool) for tool in TOOLS.values()]
        self._history: Sequence[ModelMessage] = ()
        self._instructions = ""
        self._output: Any = None
        self._menu: Menu = {}
        self._calls = 0
        self._defect: Exception | None = None
        self._runner: asyncio.Runner | None = None

    def close(self) -> None:
        """Let go of connections."""
        if self._runner is not None:
            self._runner.close()
            self._runner = None

    def think(self, prompt: str, instructions: str, menu: Menu) -> Thought | Wanted:
        """A new round. Raises Unusable and Stopped."""
        self._calls, self._instructions, self._menu = 0, instructions, menu
        self._output = _choice(menu) if self.choices else PROPOSE
        return self._answered(prompt, None)

    def told(self, answers: Mapping[str, Any]) -> Thought | Wanted:
        """On with a round whose trials were answered. Raises Unusable and Stopped."""
        return self._answered(None, DeferredToolResults(calls=dict(answers)))

    def _answered(self, prompt: str | None, results: DeferredToolResults | None) -> Thought | Wanted:
        agent: Agent[object, Any] = Agent(self._model, output_type=self._output, tools=self._tools, retries=2)
        agent.output_validator(self._checked)
        run = agent.run(
            prompt,
            instructions=self._instructions,
            message_history=None if results is None else self._history,
            deferred_tool_results=results,
            usage_limits=UsageLimits(request_limit=REQUESTS, tool_calls_limit=HARD_TOOL_CALLS),
            infer_name=False,
        )
        result = self._carried_out(run)
        self._history = result.all_messages()
        if isinstance(result.output, DeferredToolRequests):
            return Wanted({item.tool_call_id: _idea(item.args_as_dict()) for item in result.output.calls})
        if self.choices:
            return _picked(chosen(result.output, self._menu))
        return _thought(forms.read_arguments(forms.ProposeArguments, result.output))

    def _carried_out(self, run: Coroutine[Any, Any, Any]) -> Any:
        if self._runner is None:  # one for all rounds: clients keep to the event loop they were first used in
            self._runner = asyncio.Runner()
        try:
            return self._runner.run(self._until_stopped(run))
        except (Stopped, Unusable):
            raise
        except (ModelAPIError, UserError) as error:
            raise Unusable(f"{type(error).__name__}: {error}", fatal=True) from None
        except Exception as error:
            # Clients meet whatever an endpoint sends; what they raise is not known in advance. Defects of tools are.
            if self._defect is not None:
                raise self._defect from None
            raise Unusable(f"{type(error).__name__}: {error}") from None

    async def _until_stopped(self, run: Coroutine[Any, Any, Any]) -> Any:
        task = asyncio.ensure_future(run)
        while not task.done():
            await asyncio.wait({task}, timeout=GLANCE)
            if not task.done() and self._bench.stop():
                task.cancel()
                await asyncio.wait({task}, timeout=1.0)
                raise Stopped
        return task.result()

    def _offered(self, tool: Tool) -> ModelTool[object]:
        async def carried_out(**given: Any) -> Any:
            self._calls += 1
            if self._calls > TOOL_CALLS:
                return {"error": f"more than {TOOL_CALLS} tool calls in a round: propose now"}
            if tool.name == "evaluate" and given.get("trial") is True:
                return self._trial(given)
            try:
                return call(tool, self._bench, given)
            except Exception as error:
                self._defect = error
                raise

        return ModelTool.from_schema(carried_out, tool.name, tool.words, tool.schema)

    def _trial(self, given: Mapping[str, Any]) -> Any:
        """Leave a trial to the study. Raises CallDeferred, unless it cannot be read or there are no calls left."""
        try:
            forms.read_arguments(forms.EvaluateArguments, given)
        except FormatError as error:
            return {"error": [str(fault) for fault in error.faults]}
        if self._bench.left() < 1:
            return {"error": "no calls are left in the budget: ask the model without trial, or stop"}
        raise CallDeferred

    def _checked(self, output: Any) -> Any:
        """Refuse an output that cannot be read, with every fault, so that the model may correct it."""
        if isinstance(output, DeferredToolRequests):
            return output
        try:
            if self.choices:
                chosen(output, self._menu)
            else:
                forms.read_arguments(forms.ProposeArguments, output)
        except FormatError as error:
            raise ModelRetry("\n".join(str(fault) for fault in error.faults)[:2000]) from None
        return output


PROPOSE: Any = [
    ToolOutput(
        StructuredDict(forms.schema_of(forms.ProposeArguments), name="propose"),
        name="propose",
        description=forms.words_of(forms.ProposeArguments),
    ),
    DeferredToolRequests,
]


def _choice(menu: Menu) -> Any:
    from windtunnel.agent.choices import schema_of_menu

    return NativeOutput(StructuredDict(schema_of_menu(menu), name="choice"))


def _picked(found: tuple[Changes, str, float]) -> Thought:
    changes, why, expect = found
    return Thought(ideas=(Idea(changes=changes, hypothesis=why, expect=expect),))


def _idea(given: Mapping[str, Any]) -> Idea:
    found = forms.read_arguments(forms.EvaluateArguments, given)
    return Idea(changes=found["changes"], hypothesis=found["hypothesis"], expect=found["expect"])


def _thought(found: Mapping[str, Any]) -> Thought:
    ideas = tuple(Idea(**item) for item in found["proposals"])
    return Thought(ideas=ideas, plan=found["plan"], learned=found["learned"], stop=found["stop"])
