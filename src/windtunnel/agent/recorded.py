"""Conversations that are kept and held again: an answer given once is not asked for a second time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    ToolCallPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings

from windtunnel.agent.words import Secrets
from windtunnel.errors import Fault, FormatError, MissingError
from windtunnel.store.notebook import Message, Notebook

LONGEST = 400_000
"""Characters of one answer, as JSON; a longer one is a fault of the endpoint."""


class Recorded(WrapperModel):
    """A model whose answers are kept in a notebook, secrets taken out, and found there when the same is asked again.

    ``timeout`` is in seconds an answer.
    """

    def __init__(self, wrapped: Model, name: str, notebook: Notebook, secrets: Secrets, timeout: float) -> None:
        super().__init__(wrapped)
        self._timeout = timeout
        self._name = name
        self._notebook = notebook
        self._secrets = secrets

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        said = list(_said(messages))
        digest = blake2b(json.dumps(said).encode(), digest_size=16).hexdigest()
        kept = self._notebook.answered(self._name, digest)
        if kept is None:
            response = await self._answered(messages, model_settings, model_request_parameters)
            kept = self._secrets.out_of(ModelMessagesTypeAdapter.dump_json([response]).decode())
            if len(kept) > LONGEST:
                raise UnexpectedModelBehavior(f"an answer of {len(kept):,} characters")
            new = [item for item in said if item[0] == len(messages) - 1]
            asked = self._secrets.out_of(json.dumps([item[1:] for item in new]))
            self._notebook.keep(Message(model=self._name, request=digest, asked=asked, response=kept))
        return response_of(kept)

    async def _answered(
        self, messages: list[ModelMessage], settings: ModelSettings | None, parameters: ModelRequestParameters
    ) -> ModelResponse:
        try:
            return await asyncio.wait_for(super().request(messages, settings, parameters), self._timeout)
        except TimeoutError:
            raise UnexpectedModelBehavior(f"no answer within {self._timeout:g} s") from None


def response_of(text: str) -> ModelResponse:
    """An answer as it was kept."""
    (response,) = ModelMessagesTypeAdapter.validate_json(text)
    assert isinstance(response, ModelResponse)
    return response


def _said(messages: Iterable[ModelMessage]) -> Iterator[tuple[int, str, str, Any]]:
    """What was said, by position and kind; instructions, identities and times are left out."""
    for index, message in enumerate(messages):
        for part in message.parts:
            name = str(getattr(part, "tool_name", "") or "")
            content = part.args if isinstance(part, ToolCallPart) else getattr(part, "content", None)
            yield (
                index,
                f"{'asked' if isinstance(message, ModelRequest) else 'said'} {part.part_kind}",
                name,
                _plain(content),
            )


def _plain(content: Any) -> Any:
    return json.loads(json.dumps(content, default=str))


def replayed(file: str) -> FunctionModel:
    """A model that gives the answers of a recorded conversation in turn, whatever it is asked, and then stops.

    The file holds one JSON document a line with the answer under ``response``, as ``study conversation`` prints it.
    Raises MissingError and FormatError.
    """
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise MissingError(
            Fault("--llm", f"replay:{file}", str(error.strerror), "name a recorded conversation")
        ) from None
    try:
        answers = iter([response_of(json.dumps([json.loads(line)["response"]])) for line in lines if line.strip()])
    except (ValueError, KeyError, TypeError) as error:
        remedy = "record one with `windtunnel study conversation FILE`"
        raise FormatError(
            Fault("--llm", f"replay:{file}", f"is no recorded conversation: {error}"[:200], remedy)
        ) from None

    def answer(_messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        name = info.output_tools[0].name if info.output_tools else "propose"
        return next(answers, ModelResponse(parts=[ToolCallPart(name, {"stop": True})]))

    return FunctionModel(answer, model_name="replay")
