"""Names and entries of the catalog on a screen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.text import Text


def names_text(kinds: Mapping[str, Iterable[str]]) -> RenderableType:
    """One name a line for one kind, so that a shell can read it; columns under headings for all of them."""
    if len(kinds) == 1:
        return Text("\n".join(next(iter(kinds.values()))))
    parts: list[RenderableType] = []
    for kind, names in kinds.items():
        parts += [Text(kind, style="bold"), Columns([f"  {name}" for name in names], equal=True)]
    return Group(*parts)


def entry_text(name: str, entry: object) -> RenderableType:
    """An entry as an outline of its keys."""
    return Group(Text(name, style="bold"), Text("\n".join(_outline(entry, 1))))


def _outline(value: Any, depth: int) -> list[str]:
    indent = "  " * depth
    if isinstance(value, Mapping):
        return [line for key, item in value.items() for line in _entry(indent, f"{key}:", item, depth)]
    if isinstance(value, list):
        return [line for item in value for line in _entry(indent, "-", item, depth)]
    return [f"{indent}{_scalar(value)}"]


def _entry(indent: str, lead: str, item: Any, depth: int) -> list[str]:
    if isinstance(item, list) and not any(isinstance(part, Mapping | list) for part in item):
        return [f"{indent}{lead} [{', '.join(map(_scalar, item))}]"]
    if (
        lead == "-"
        and isinstance(item, Mapping)
        and not any(isinstance(part, Mapping | list) for part in item.values())
    ):
        return [f"{indent}- {', '.join(f'{key} {_scalar(part)}' for key, part in item.items())}"]
    if isinstance(item, Mapping | list):
        return [f"{indent}{lead}", *_outline(item, depth + 1)]
    return [f"{indent}{lead} {_scalar(item)}"]


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "none" if value is None else str(value)
