"""From ``provider:model`` to a model: whatever pydantic-ai knows, a recorded conversation, or a scripted policy."""

from __future__ import annotations

from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model, infer_model
from pydantic_ai.models.function import FunctionModel

from windtunnel.agent.recorded import replayed
from windtunnel.agent.scripted import SCRIPTS
from windtunnel.agent.words import Secrets, clean
from windtunnel.errors import Fault, FormatError, MissingError


def model_of(text: str, secrets: Secrets) -> Model:
    """The model of ``--llm``; nothing is sent to it yet. Raises FormatError and MissingError."""
    provider, _, name = text.partition(":")
    if provider == "replay":
        return replayed(name)
    if provider == "scripted":
        if name not in SCRIPTS:
            raise FormatError(Fault("--llm", text, "no such script", f"known: {', '.join(SCRIPTS)}"))
        return FunctionModel(SCRIPTS[name], model_name=name)
    if not name:
        remedy = "write openai:NAME, anthropic:NAME, ollama:NAME, or openai-chat:NAME with OPENAI_BASE_URL"
        raise FormatError(Fault("--llm", text, "a provider and a model are due", remedy))
    try:
        return infer_model(text)
    except ImportError:
        remedy = f'pip install "pydantic-ai-slim[{provider.split("-")[0]}]"'
        raise MissingError(Fault("--llm", text, "the client of this provider is not installed", remedy)) from None
    except (UserError, ValueError) as error:
        remedy = "correct the name, or set the environment variables of the provider"
        raise FormatError(Fault("--llm", text, clean(secrets.out_of(str(error)), 300), remedy)) from None
