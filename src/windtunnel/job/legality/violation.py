"""What a legality rule answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from windtunnel.job.draft import Draft


@dataclass(frozen=True, slots=True)
class Repair:
    """The nearest change that satisfies the rule: full job paths and the values to give them."""

    changes: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A broken rule: its id, the sentence, the values it looked at and how to mend it.

    A ``warning`` does not make the job illegal.
    """

    rule: str
    message: str
    path: str
    values: Mapping[str, object]
    repairs: tuple[Repair, ...] = ()
    severity: Literal["error", "warning"] = "error"


Rule = Callable[[Draft], Violation | None]
