"""The only reader of files: bounded text, YAML 1.2 and JSON, and the data shipped with the package.

A file is untrusted. Every refusal is an error with file, value, rule and remedy; it comes before the content can cost
time or memory: size is checked unread, depth, aliases and tags while parsing, and nothing but mappings, lists, text,
numbers, booleans and null is ever built.
"""

from __future__ import annotations

import json
import os
import re
import stat
from functools import lru_cache
from importlib.resources import files as package_files
from importlib.resources.abc import Traversable
from math import isinf
from typing import TYPE_CHECKING, NoReturn

from windtunnel.errors import Fault, FormatError, MissingError
from windtunnel.units import human_bytes

if TYPE_CHECKING:
    from ruamel.yaml.error import YAMLError

JOB_LIMIT = 2**20
"""Bytes of the largest job file."""
RECORDS_LIMIT = 64 * 2**20
"""Bytes of the largest file of records or profiles."""
_BYTES_PER_VALUE = 16
"""A file of the largest size may hold one value per so many bytes: parsing it stays near a second a MiB."""
_MAX_DEPTH = 64
_ITEM = "- {"
_DIRECTIVE = re.compile(r"^%.*", re.MULTILINE)


def read_text(path: str | os.PathLike[str], limit_bytes: int) -> str:
    """The text of a regular UTF-8 file of at most ``limit_bytes`` bytes; larger files are refused unread.

    Raises:
        MissingError: no such file.
        FormatError: a directory or device, unreadable, too large, or not text.
    """
    name = os.fspath(path)
    try:
        return _decode(_read_bytes(name, limit_bytes), name)
    except (FileNotFoundError, NotADirectoryError):
        fault = Fault(name, "", "no such file", "check the path, or `windtunnel list` for catalog names")
        raise MissingError(fault) from None
    except PermissionError:
        _refuse(name, "", "the file cannot be read", "give this user read permission")
    except (OSError, ValueError) as error:
        _refuse(name, "", f"the file cannot be read: {error}", "check the path")


def read_yaml(path: str | os.PathLike[str], *, limit_bytes: int) -> object:
    """The value of a YAML 1.2 file, or of a JSON file where the name ends in ``.json``.

    Raises:
        MissingError: no such file.
        FormatError: anything that is not exactly one document of plain values within the limits.
    """
    name = os.fspath(path)
    text = read_text(path, limit_bytes)
    if name.endswith(".json"):
        return parse_json(text, name)
    return parse_yaml(text, name, max_values=max(1, limit_bytes // _BYTES_PER_VALUE))


def parse_yaml(text: str, name: str, *, max_values: int = JOB_LIMIT // _BYTES_PER_VALUE) -> object:
    """The value of YAML 1.2 text; ``name`` stands in the errors. A list of one JSON object a line is read as JSON."""
    if text.startswith(_ITEM):
        items = _json_items(text)
        if items is not None:
            return items
    return _parse_events(text, name, max_values)


def parse_json(text: str, name: str) -> object:
    """The value of JSON text, with the same limits as YAML: unique keys, finite numbers, bounded depth."""
    if not text.strip():
        _refuse(name, "", "the file is empty", "write a JSON object")
    try:
        return _load_json(text)
    except _Irregular as irregular:
        _refuse(name, irregular.value, irregular.rule, irregular.remedy)
    except json.JSONDecodeError as error:
        _refuse(name, f"line {error.lineno}, column {error.colno}", f"not JSON: {error.msg}", "correct the text there")


@lru_cache(maxsize=1)
def _data_root() -> Traversable:
    return package_files("windtunnel") / "data"


def data_file(*parts: str) -> Traversable:
    """A file or folder of the data shipped with the package, e.g. ``data_file("accelerators", "mi300x.yaml")``."""
    return _data_root().joinpath(*parts)


@lru_cache(maxsize=16)
def data_names(folder: str) -> tuple[str, ...]:
    """Names of the YAML files of a data folder, sorted, without their ending."""
    names = (entry.name for entry in data_file(folder).iterdir())
    return tuple(sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml")))


def load_data(*parts: str) -> object:
    """The value of a YAML or JSON file shipped with the package.

    Raises:
        MissingError: the package has no such file.
        FormatError: the file is not valid.
    """
    name = "/".join(("data", *parts))
    try:
        text = data_file(*parts).read_text(encoding="utf-8")
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise MissingError(Fault(name, "", "the package holds no such file", "`windtunnel list` shows names")) from None
    return parse_json(text, name) if name.endswith(".json") else parse_yaml(text, name)


def _read_bytes(name: str, limit_bytes: int) -> bytes:
    # Opening a FIFO would wait for a writer, so the kind is looked at first.
    status = os.stat(name)
    if stat.S_ISDIR(status.st_mode):
        _refuse(name, "a directory", "a file is needed", "name a file in it")
    if not stat.S_ISREG(status.st_mode):
        _refuse(name, "not a regular file", "a regular file is needed", "pass - and send the text to standard input")
    if status.st_size > limit_bytes:
        _too_large(name, status.st_size, limit_bytes)
    with open(name, "rb") as file:
        content = file.read(limit_bytes + 1)
    if len(content) > limit_bytes:
        _too_large(name, len(content), limit_bytes)
    return content


def _too_large(name: str, size: int, limit_bytes: int) -> NoReturn:
    rule = f"the file may hold {limit_bytes} bytes ({human_bytes(limit_bytes)}) at most"
    _refuse(name, f"{size} bytes", rule, "split it, or check that it is the file you mean")


def _decode(content: bytes, name: str) -> str:
    if b"\0" in content:
        _refuse(name, "NUL bytes", "the file must be UTF-8 text", "this looks like a binary file: name a text file")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        _refuse(name, f"byte {error.start}", "the file must be UTF-8 text", "save it as UTF-8")


def _parse_events(text: str, name: str, max_values: int) -> object:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    from windtunnel.catalog.yaml12 import Refusal, build

    directive = _DIRECTIVE.search(text)
    if directive is not None:
        _refuse(
            name,
            directive[0][:40],
            "files are read as YAML 1.2 without directives",
            "remove the lines that begin with %",
        )
    try:
        return build(YAML(typ="safe", pure=True).parse(text), max_values)
    except Refusal as refusal:
        value = f"{refusal.value} (line {refusal.line})" if refusal.line else refusal.value
        _refuse(name, value.strip(), refusal.rule, refusal.remedy)
    except YAMLError as error:
        _refuse(name, _line_of(error), f"not YAML: {_problem_of(error)}", "correct the text there")
    except RecursionError:
        _refuse(name, "", f"values may be nested {_MAX_DEPTH} deep at most", "flatten the value")
    except (ValueError, IndexError, AttributeError, TypeError, AssertionError) as error:
        # The scanner trips over some malformed text instead of naming it (an anchor or escape cut short).
        _refuse(name, "", f"not YAML: {error}", "correct the text")


def _line_of(error: YAMLError) -> str:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    return f"line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""


def _problem_of(error: YAMLError) -> str:
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    return str(problem).splitlines()[0][:200]


class _Irregular(Exception):
    """JSON that parses, but not to a value of the format."""

    def __init__(self, value: str, rule: str, remedy: str) -> None:
        super().__init__(rule)
        self.value = value
        self.rule = rule
        self.remedy = remedy


def _json_items(text: str) -> list[object] | None:
    """A YAML list of one JSON object a line, or None where some line is anything else."""
    items = []
    for line in text.splitlines():
        if line.startswith(_ITEM):
            try:
                items.append(_load_json(line[2:]))
            except (json.JSONDecodeError, _Irregular):
                return None
        elif line and not line.startswith("#"):
            return None
    return items


def _load_json(text: str) -> object:
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_float=_finite, parse_constant=_not_finite)
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        if isinstance(error, json.JSONDecodeError):
            raise
        raise _Irregular("", f"not a number: {error}", "shorten it") from None
    _check_depth(value)
    return value


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        seen: set[str] = set()
        key = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise _Irregular(key[:80], "a key may be given once", "remove one of the two")
    return mapping


def _finite(text: str) -> float:
    value = float(text)
    return _not_finite(text) if isinf(value) else value


def _not_finite(text: str) -> NoReturn:
    raise _Irregular(text[:40], "a number must be finite", "write a finite number")


def _too_deep() -> _Irregular:
    return _Irregular("", f"values may be nested {_MAX_DEPTH} deep at most", "flatten the value")


def _check_depth(value: object) -> None:
    level, depth = [value], 0
    while level:
        depth += 1
        inner = [item for item in level if isinstance(item, (dict, list))]
        if inner and depth > _MAX_DEPTH:
            raise _too_deep()
        level = [part for item in inner for part in (item.values() if isinstance(item, dict) else item)]


def _refuse(name: str, value: str, rule: str, remedy: str) -> NoReturn:
    raise FormatError(Fault(name, value, rule, remedy))
