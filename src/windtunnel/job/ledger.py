"""Values in the making: given, or taken from a default or a derivation that is written down."""

from __future__ import annotations

from collections.abc import Mapping

from windtunnel.job.job import Level, Origin
from windtunnel.job.software import SoftwareDefault


class Ledger:
    """Settles paths one by one, strongest source first, and records where every value not given came from.

    ``given`` holds the values a user wrote by full path; ``defaults`` what the framework sets.
    """

    def __init__(self, given: Mapping[str, object], defaults: Mapping[str, SoftwareDefault]) -> None:
        self._given = given
        self._defaults = defaults
        self.values: dict[str, object] = {}
        self.origin: list[Origin] = []
        self.warnings: list[str] = []

    def gave(self, path: str) -> bool:
        return path in self._given

    def given(self, path: str) -> object:
        """What a user wrote, or None."""
        return self._given.get(path)

    def default(self, path: str) -> object:
        """What the framework sets, or None."""
        return self._defaults[path].value if path in self._defaults else None

    def take(self, path: str, neutral: object, why: str = "the format's default") -> object:
        """The value given, else the framework's, else ``neutral``."""
        if path in self._given:
            return self._settle(path, self._given[path])
        if path in self._defaults:
            default = self._defaults[path]
            return self._note(path, default.value, "software", default.source)
        return self._note(path, neutral, "neutral", why)

    def derive(self, path: str, value: object, why: str) -> object:
        """The value given, else one that follows from others."""
        if path in self._given:
            return self._settle(path, self._given[path])
        return self._note(path, value, "derived", why)

    def force(self, path: str, value: object, why: str) -> object:
        """A value that stands whatever was given; a different one that was given is worth a warning."""
        if self._given.get(path, value) != value:
            self.warnings.append(f"{path} = {value}, not {self._given[path]} as given: {why}")
        return self._note(path, value, "derived", why)

    def _note(self, path: str, value: object, level: Level, why: str) -> object:
        self.origin.append(Origin(path, value, level, why))
        return self._settle(path, value)

    def _settle(self, path: str, value: object) -> object:
        self.values[path] = value
        return value
