"""Words from outside made safe to keep and to show: no control characters, no secrets, not too many."""

from __future__ import annotations

import re
from collections.abc import Mapping

SECRET = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS?)$")
"""Names of environment variables whose values are secrets."""
SHORTEST = 6
"""Characters from which a secret is looked for: shorter ones are found in every text."""


def clean(text: str, limit: int = 600) -> str:
    """One line of printable characters, at most ``limit`` of them."""
    found = " ".join("".join(c if c.isprintable() else " " for c in text[: 8 * limit]).split())
    return found if len(found) <= limit else found[: limit - 1] + "…"


class Secrets:
    """The secrets of an environment, taken out of texts."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        values = {
            value for name, value in environment.items() if SECRET.search(name.upper()) and len(value) >= SHORTEST
        }
        self._values = sorted(values, key=len, reverse=True)

    def out_of(self, text: str) -> str:
        for value in self._values:
            text = text.replace(value, "***")
        return text
