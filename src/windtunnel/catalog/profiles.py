"""Profiles on disk: a YAML list of one JSON object a line, so that a line more is a measurement more.

The first line says what was measured on: ``{"profile": 1, "device", "software", "method"}``. Every other line is an
entry with a checksum of its own; a line cut short by a crash is the last one and can be taken off (``repair``). What
was measured stands under ``seconds``, bytes and ratios under ``value``.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, NoReturn

from pydantic import Field

from windtunnel.catalog.files import RECORDS_LIMIT, read_text
from windtunnel.catalog.format import Section, read_section
from windtunnel.catalog.writing import write_whole
from windtunnel.cost.profile import BYTES, CALIBRATION, VERSION, Entry, Profile, key
from windtunnel.errors import Fault, FormatError

_Positive = Annotated[float, Field(gt=0, strict=True)]
_Text = Annotated[str, Field(strict=True, max_length=200)]


class _Head(Section):
    profile: Annotated[int, Field(strict=True)]
    device: dict[_Text, _Text | Annotated[float, Field(strict=True)]]
    software: dict[_Text, _Text]
    method: dict[_Text, _Text | Annotated[float, Field(strict=True)]]


class _Line(Section):
    op: _Text
    phase: Annotated[Literal["forward", "grad_input", "grad_weight", "backward", "step", "none"], Field(alias="pass")]
    shape: dict[_Text, Annotated[float, Field(ge=0, strict=True)]]
    dtype: _Text
    seconds: _Positive | None = None
    value: _Positive | None = None
    spread: tuple[_Positive, _Positive]
    repeats: Annotated[int, Field(gt=0, strict=True)]
    remarks: tuple[_Text, ...] = ()
    check: _Text


def read_profile(path: str | os.PathLike[str]) -> Profile:
    """The profile of a file.

    Raises:
        MissingError: no such file.
        FormatError: another version, a line that is no entry, or one whose checksum does not fit its content.
    """
    name = os.fspath(path)
    head, *lines = _lines(read_text(path, RECORDS_LIMIT), name)
    entries = tuple(_entry(line, f"{name}, line {number}") for number, line in enumerate(lines, 2))
    return _of_head(head, name, entries)


def is_profile(path: str | os.PathLike[str]) -> bool:
    """Whether a file begins as a profile does; a file that is not there is none."""
    try:
        with open(path, "rb") as file:
            return file.read(len(BEGINNING)) == BEGINNING
    except OSError:
        return False


BEGINNING = b'- {"profile":'


def _of_head(head: Mapping[str, Any], name: str, entries: tuple[Entry, ...]) -> Profile:
    values = read_section(_Head, head, f"{name}, line 1")
    if values["profile"] != VERSION:
        rule = f"this version reads profiles of format {VERSION}"
        raise FormatError(Fault(f"{name}.profile", str(values["profile"]), rule, "measure again"))
    parts = {part: tuple(sorted(values[part].items())) for part in ("device", "software", "method")}
    return Profile(entries=entries, **parts)


def _lines(text: str, name: str) -> list[dict[str, Any]]:
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            value = json.loads(line.removeprefix("- "), parse_constant=_no_constant)
        except ValueError:
            value = None
        if not line.startswith("- ") or not isinstance(value, dict):
            _corrupt(f"{name}, line {number}", line)
        found.append(value)
    if not found:
        raise FormatError(Fault(name, "", "the file is empty", "measure with `windtunnel measure JOB --out FILE`"))
    return found


def _no_constant(text: str) -> NoReturn:
    raise ValueError(text)


def _corrupt(where: str, line: str) -> NoReturn:
    rule = "the line is no entry of a profile, or was changed since it was measured"
    raise FormatError(Fault(where, line[:60], rule, "take the file from where it was measured, or measure again"))


def _entry(line: Mapping[str, Any], where: str) -> Entry:
    content = {name: value for name, value in line.items() if name != "check"}
    if line.get("check") != _checksum(content):
        _corrupt(where, json.dumps(content))
    values = read_section(_Line, line, where)
    if values.get(quantity(values["op"])) is None:
        _corrupt(where, json.dumps(content))
    return Entry(
        key=key(values["op"], values["phase"], values["dtype"], values["shape"]),
        seconds=values[quantity(values["op"])],
        low=values["spread"][0],
        high=values["spread"][1],
        repeats=values["repeats"],
        remarks=tuple(values.get("remarks", ())),
    )


def _checksum(content: Mapping[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(content, sort_keys=True).encode()):08x}"


def head_line(profile: Profile) -> str:
    """The first line of a profile's file."""
    parts = {part: dict(getattr(profile, part)) for part in ("device", "software", "method")}
    return f"- {json.dumps({'profile': VERSION, **parts})}\n"


def entry_line(entry: Entry) -> str:
    """The line of one entry."""
    content: dict[str, Any] = {
        "op": entry.key.op,
        "pass": entry.key.phase,
        "shape": dict(entry.key.shape),
        "dtype": entry.key.dtype,
        quantity(entry.key.op): entry.seconds,
        "spread": [entry.low, entry.high],
        "repeats": entry.repeats,
    }
    if entry.remarks:
        content["remarks"] = list(entry.remarks)
    return f"- {json.dumps({**content, 'check': _checksum(content)})}\n"


def quantity(op: str) -> str:
    """The word an entry's figure stands under."""
    return "value" if op.startswith((BYTES, CALIBRATION)) else "seconds"


def write_profile(path: str | os.PathLike[str], profile: Profile) -> None:
    """The whole profile, written at once. Raises FormatError where that fails."""
    write_whole(path, [head_line(profile), *map(entry_line, profile.entries)])


def append_entries(path: str | os.PathLike[str], entries: Iterable[Entry]) -> None:
    """Entries more at the end of a profile's file, on disk when this returns."""
    with open(path, "a", encoding="utf-8") as file:
        file.writelines(map(entry_line, entries))
        file.flush()
        os.fsync(file.fileno())


def repair(path: str | os.PathLike[str]) -> None:
    """Take off a last line that a crash cut short."""
    with open(path, "r+b") as file:
        content = file.read()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            file.truncate(whole)
