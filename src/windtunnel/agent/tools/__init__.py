"""The tools a model or an assistant is given: read-only but for trials and notes, typed, bounded."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from windtunnel.agent.bench import Bench
from windtunnel.agent.tools import look, past, sweep
from windtunnel.agent.views import refused
from windtunnel.catalog import tool_format as forms
from windtunnel.errors import Fault, FormatError, WindtunnelError

Answer = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function of a bench and of arguments that ``form`` reads."""

    name: str
    form: type[Any]
    run: Callable[..., Answer]

    @property
    def words(self) -> str:
        return forms.words_of(self.form)

    @property
    def schema(self) -> dict[str, Any]:
        return forms.schema_of(self.form)


TOOLS: Mapping[str, Tool] = {
    tool.name: tool
    for tool in (
        Tool(name="evaluate", form=forms.EvaluateArguments, run=look.evaluate),
        Tool(name="memory", form=forms.MemoryArguments, run=look.memory),
        Tool(name="sweep", form=forms.SweepArguments, run=sweep.sweep),
        Tool(name="axes", form=forms.AxesArguments, run=past.axes),
        Tool(name="history", form=forms.HistoryArguments, run=past.history),
        Tool(name="sensitivity", form=forms.SensitivityArguments, run=look.sensitivity),
        Tool(name="explain", form=forms.ExplainArguments, run=look.explain),
        Tool(name="compare", form=forms.CompareArguments, run=look.compare),
        Tool(name="stages", form=forms.StagesArguments, run=look.stages),
        Tool(name="scratchpad", form=forms.ScratchpadArguments, run=past.scratchpad),
    )
}
LONGEST = 24_000
"""Characters of an answer."""


def call(tool: Tool, bench: Bench, given: object) -> Answer:
    """The answer of a tool, or what is wrong with the question: never an exception a caller could cause."""
    try:
        answer = tool.run(bench, **forms.read_arguments(tool.form, given))
        if len(json.dumps(answer)) > LONGEST:
            rule = f"the answer is longer than {LONGEST} characters"
            raise FormatError(Fault(tool.name, "", rule, "ask for less at once"))
    except FormatError as error:
        return {"error": refused(error)["faults"]}
    except WindtunnelError as error:
        return refused(error)
    return answer
