"""Values to JSON's own types: dataclasses become objects, sets become sorted lists, numpy scalars plain numbers."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import fields, is_dataclass
from typing import Any


def plain(value: object) -> Any:
    """``value`` in terms of dict, list, str, int, float, bool and None.

    Raises TypeError for a value JSON has no word for, so that nothing is printed by its ``repr`` unnoticed.
    """
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Set):
        return sorted(plain(item) for item in value)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"no JSON form of {type(value).__name__}")
