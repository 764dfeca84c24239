"""Typed access to an untrusted ``config.json``: every fault is collected, nothing raises before the end."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from windtunnel.catalog.faults import join, show
from windtunnel.errors import Fault, FormatError

MAX_SIZE = 2**24
MAX_LAYERS = 4096
MAX_TOKENS = 10**9
"""Far above anything that exists; a larger number is a slip or an attack, and layers would be laid out one by one."""


@dataclass(slots=True)
class ConfigReader:
    """Reads keys of ``config``; null counts as absent. ``where`` leads the path of every fault.

    A faulty value is replaced by 1 (or the default) so that reading goes on and finds the remaining faults.
    """

    config: Mapping[str, object]
    where: str = ""
    faults: list[Fault] = field(default_factory=list)

    def has(self, *keys: str) -> bool:
        """Whether one of the keys is present and not null."""
        return any(self.config.get(key) is not None for key in keys)

    def key(self, *keys: str) -> str:
        """The first of the keys that is present and not null, else the first."""
        return next((key for key in keys if self.config.get(key) is not None), keys[0])

    def fault(self, key: str, rule: str, remedy: str) -> None:
        """Notes that the value of ``key`` breaks a rule."""
        value = self.config.get(key)
        self.faults.append(Fault(join(self.where, key), "" if value is None else show(value), rule, remedy))

    def require(self, *keys: str, low: int = 1, high: int = MAX_SIZE) -> int:
        """A whole number that has to be there under one of the spellings."""
        if not self.has(*keys):
            self.fault(keys[0], "is required", f"add {' or '.join(keys)}")
            return 1
        return self.whole(*keys, low=low, high=high)

    def whole(self, *keys: str, default: int = 0, low: int = 0, high: int = MAX_SIZE) -> int:
        """A whole number from ``low`` to ``high``, or the default."""
        key = self.key(*keys)
        value = self.config.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            self.fault(key, "a whole number is due", f"write an integer from {low} to {high}")
        elif low <= value <= high:
            return value
        else:
            self.fault(key, f"must be from {low} to {high}", "correct the number")
        return max(low, 1)

    def optional(self, *keys: str) -> int | None:
        """A positive whole number, or None where absent."""
        return self.whole(*keys, low=1) if self.has(*keys) else None

    def flag(self, *keys: str, default: bool = False) -> bool:
        """A boolean, or the default."""
        key = self.key(*keys)
        value = self.config.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.fault(key, "a boolean is due", "write true or false")
            return default
        return value

    def text(self, *keys: str, default: str = "") -> str:
        """Text, or the default."""
        key = self.key(*keys)
        value = self.config.get(key)
        if value is None:
            return default
        if not isinstance(value, str):
            self.fault(key, "text is due", "write it in quotes")
            return default
        return value

    def listed(self, key: str, kinds: tuple[type, ...], length: int | None = None) -> list[object] | None:
        """A list whose items are of the given types, of ``length`` items where one is due; None where absent."""
        value = self.config.get(key)
        if value is None:
            return None
        if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
            self.fault(key, "a list is due", "write it like [1, 2]")
        elif not all(isinstance(item, kinds) and (not isinstance(item, bool) or bool in kinds) for item in value):
            names = " or ".join(kind.__name__ for kind in kinds)
            self.fault(key, f"every item must be {names}", "correct the items")
        elif length is not None and len(value) != length:
            self.fault(key, f"one item a layer is due: {length}, not {len(value)}", "correct it or num_hidden_layers")
        else:
            return list(value)
        return None

    def below(self, config: object, where: str) -> ConfigReader:
        """A reader of a part of the file that shares the list of faults."""
        path = join(self.where, where)
        if not isinstance(config, Mapping):
            self.faults.append(Fault(path, show(config), "an object is due", "write keys and values"))
            return ConfigReader({}, path, [])
        return ConfigReader(config, path, self.faults)

    def number(self, key: str, high: float) -> float:
        """A positive finite number."""
        value = self.config.get(key)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.fault(key, "a number is due", "write a number")
        elif not math.isfinite(value) or not 0 < value <= high:
            self.fault(key, f"must be above 0 and at most {high:g}", "correct the number")
        else:
            return value
        return 1.0

    def check(self) -> None:
        """Raises FormatError with every fault noted so far."""
        if self.faults:
            raise FormatError(self.faults)
