"""What pydantic refuses, said as faults: path, value, rule and remedy, with the nearest known key or name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from windtunnel.errors import Fault

_SHOWN = 60
_DUE = {
    "bool_type": ("a boolean is due", "write true or false"),
    "string_type": ("text is due", "write text, in quotes if it looks like a number"),
    "string_too_short": ("must not be empty", "write it or leave the key out"),
    "string_too_long": ("is too long", "shorten it"),
    "model_type": ("a mapping is due", "write the keys below it"),
    "model_attributes_type": ("a mapping is due", "write the keys below it"),
    "dict_type": ("a mapping is due", "write the keys below it"),
    "tuple_type": ("a list is due", "write it like [1, 2]"),
    "string_pattern_mismatch": ("holds symbols that are not known", "use M, *, E, - and | only"),
}


def show(value: object) -> str:
    """A value as a fault prints it: short, on one line."""
    try:
        text = value if isinstance(value, str) else repr(value)
    except RecursionError:
        text = f"a {type(value).__name__} nested too deeply to show"
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def nearest(word: str, known: Iterable[str], count: int = 3) -> list[str]:
    """The ``count`` known words most like ``word``; none if nothing is like it."""
    return difflib.get_close_matches(word, list(known), n=count, cutoff=0.5)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A remedy naming the nearest known words, or all of them where none is near."""
    words = sorted(known)
    close = nearest(word, words)
    return f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(words)}"


def shape_fault(value: object, path: str) -> Fault:
    """A value that is not a mapping where one is due."""
    if value is None:
        return Fault(path, "", "nothing is written here", "write a mapping of keys to values")
    return Fault(path, show(value), "a mapping of keys to values is due", "write one key: value on each line")


def faults_of(error: ValidationError, section: type[BaseModel], where: str = "") -> list[Fault]:
    """All faults of one validation, in the order of the file's keys."""
    return [_fault(dict(item), section, where) for item in error.errors(include_url=False)]


def _fault(item: dict[str, Any], section: type[BaseModel], where: str) -> Fault:
    whole = item["loc"]
    key = whole[-1:] if item["type"] == "extra_forbidden" else ()  # as it was written, whatever it looks like
    loc = (*(part for part in whole[: len(whole) - len(key)] if not str(part).startswith("<")), *key)
    rule, remedy = _rule(item, loc, section)
    value = "" if item["type"] == "missing" else show(item["input"])
    return Fault(join(where, *loc), value, rule, remedy)


def _rule(item: dict[str, Any], loc: tuple[str | int, ...], section: type[BaseModel]) -> tuple[str, str]:
    kind, context = item["type"], item.get("ctx", {})
    if kind == "rule":
        return context["rule"], context["remedy"]
    if kind == "extra_forbidden":
        return "unknown key", did_you_mean(str(loc[-1]), keys_at(section, loc[:-1]))
    if kind == "missing":
        return "is required", "add it"
    if kind == "literal_error":
        choices = context["expected"].replace(" or ", ", ").replace("'", "")
        return f"must be one of {choices}", did_you_mean(str(item["input"]), choices.split(", "))
    if item["input"] is None:
        return "must not be empty", "give it a value or leave the key out"
    return _DUE.get(kind, (item["msg"], "correct the value"))


def join(where: str, *parts: str | int) -> str:
    """A path: names joined by dots, list positions in brackets."""
    path = where
    for part in parts:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    return path


def keys_at(section: type[BaseModel], loc: Iterable[str | int]) -> tuple[str, ...]:
    """The keys known at a place below a section; none where anything goes."""
    for part in loc:
        field = section.model_fields.get(str(part))
        below = _section_in(field.annotation) if field else None
        if below is None:
            return ()
        section = below
    return tuple(section.model_fields)


def paths_of(section: type[BaseModel], where: str = "") -> list[str]:
    """Every path below a section, sections themselves included."""
    paths = []
    for name, field in section.model_fields.items():
        path = join(where, name)
        below = _section_in(field.annotation)
        paths += [path, *(paths_of(below, path) if below else ())]
    return paths


def _section_in(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _section_in(part))), None)
