"""The proposer that asks a language model, put together from what ``tune`` was told."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from windtunnel.cli.clock import Clock, seconds_of
from windtunnel.cli.flags import Request
from windtunnel.cli.tuning import Tuning
from windtunnel.errors import Fault, FormatError, MissingError
from windtunnel.job.job import Job
from windtunnel.search.objective import Goal
from windtunnel.search.proposers import Ground

if TYPE_CHECKING:
    from windtunnel.agent.llm import Llm
    from windtunnel.agent.words import Secrets
    from windtunnel.store.notebook import Notebook

NAME = "llm"
Make = Callable[..., "Llm"]


def assistant(tuning: Tuning, asked: Request, goal: Goal, clock: Clock, *, quiet: bool) -> Make | None:
    """What makes the proposer once the study is there; None where none is asked for. Nothing is sent yet.

    Raises FormatError and MissingError for a model that cannot be had.
    """
    if NAME not in tuning.names:
        if tuning.llm is not None:
            raise FormatError(Fault("--llm", tuning.llm, "no proposer asks it", "add --proposer seed,llm"))
        return None
    if tuning.llm is None:
        rule = "the proposer llm asks a language model"
        raise FormatError(Fault("--proposer", tuning.proposer, rule, "name it with --llm provider:model"))
    try:
        from windtunnel.agent.bench import Bench
        from windtunnel.agent.journal import Journal
        from windtunnel.agent.llm import Llm
        from windtunnel.agent.models import model_of
        from windtunnel.agent.recorded import Recorded
        from windtunnel.agent.thinking import Mind
        from windtunnel.agent.words import Secrets
    except ImportError:
        remedy = 'pip install "windtunnel[agent]"'
        raise MissingError(Fault("--proposer", NAME, "pydantic-ai is not installed", remedy)) from None
    secrets, name = Secrets(os.environ), tuning.llm
    model = model_of(name, secrets)
    timeout = seconds_of("--llm-timeout", tuning.llm_timeout)

    def make(
        base: Job,
        ground: Ground,
        notebook: Notebook,
        oracle: str,
        left: Callable[[], float],
        certified: Callable[[], bool],
    ) -> Llm:
        bench = Bench(
            job=base, space=ground.space, load=asked.load, vary=asked.vary, goal=goal, oracle=oracle,
            left=left, stop=clock.over, certified=certified,
        )  # fmt: skip
        mind = Mind(Recorded(model, name, notebook, secrets, timeout), bench, choices=tuning.llm_choices)
        return Llm(ground, mind, bench, Journal(notebook, secrets), lambda why: _warn(name, why, secrets, quiet=quiet))

    return make


def _warn(name: str, why: str, secrets: Secrets, *, quiet: bool) -> None:
    if not quiet:
        sys.stderr.write(
            f"warning: --llm {secrets.out_of(name)} cannot be used, going on with seed and exhaustive: {why}\n"
        )
