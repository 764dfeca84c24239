"""Errors that name the rule, the values and the remedy.

WindtunnelError
├── FormatError     a file or value that cannot be read as what it claims to be
├── LegalityError   a job that cannot run
└── MissingError    a file, catalog name or optional package that is not there
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong: where, what was found, which rule it breaks and what to do about it."""

    path: str
    value: str
    rule: str
    remedy: str

    def __str__(self) -> str:
        shown = f" = {self.value}" if self.value else ""
        return f"{self.path}{shown}: {self.rule}; {self.remedy}"


class WindtunnelError(Exception):
    """Base of every error a user can cause; carries all faults found, not only the first."""

    kind: ClassVar[str] = "internal"

    def __init__(self, faults: Sequence[Fault] | Fault) -> None:
        self.faults: tuple[Fault, ...] = (faults,) if isinstance(faults, Fault) else tuple(faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))


class FormatError(WindtunnelError):
    kind = "format"


class LegalityError(WindtunnelError):
    kind = "legality"


class MissingError(WindtunnelError):
    kind = "missing"
