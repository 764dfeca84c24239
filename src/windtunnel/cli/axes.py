"""The space of a search as the command line bounds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from windtunnel.errors import Fault, FormatError, LegalityError

if TYPE_CHECKING:
    from windtunnel.cli.flags import Request
    from windtunnel.job.job import Job
    from windtunnel.search.space import Space


def bounded(axes: Space, vary: Sequence[str], file: str | None) -> Space:
    """The default space, then the file's axes, then the command line's."""
    from windtunnel.catalog.files import JOB_LIMIT, read_yaml
    from windtunnel.catalog.overrides import parse_overrides

    values: dict[str, Sequence[Any]] = {}
    if file:
        content = read_yaml(file, limit_bytes=JOB_LIMIT)
        if not isinstance(content, Mapping):
            raise FormatError(Fault(file, "", "a space is a mapping of job paths", "write plan.parallel.tp: [1, 2, 4]"))
        values |= {str(path): _values(str(path), value, axes) for path, value in content.items()}
    for text in vary:
        path, _, listed = text.partition("=")
        if not listed.strip():
            raise FormatError(Fault("--vary", text, "an axis has values", "write --vary plan.parallel.tp=1,2,4"))
        parsed = parse_overrides([f"{path}=[{listed}]"])
        values[path] = _values(path, parsed[path], axes)
    parse_overrides([f"{path}=0" for path in values])
    return axes.pinned(values)


def check_values(asked: Request, base: Job, axes: Space) -> None:
    """Every value the user named can be read: a misspelt name is a fault, not an illegal plan.

    Raises FormatError and MissingError; what is only illegal alone may be legal with other values.
    """
    from windtunnel.search.space import default_space

    own = {axis.path: axis.values for axis in default_space(base).axes}
    for axis in axes.axes:
        for value in () if own.get(axis.path) == axis.values else axis.values:
            if axis.path not in SPECIAL:
                with suppress(LegalityError):
                    asked.vary({axis.path: value})


SPECIAL = ("plan.pipeline.layout", "plan.sharding.shard_size")
"""Axes with words of their own, as ``balanced`` and ``divisors``."""


def _values(path: str, value: object, axes: Space) -> Sequence[Any]:
    if isinstance(value, Mapping) and value.keys() <= {"min", "max"}:
        own = next((axis.values for axis in axes.axes if axis.path == path), ())
        low, high = value.get("min", float("-inf")), value.get("max", float("inf"))
        return [item for item in own if isinstance(item, int | float) and low <= item <= high]
    return list(value) if isinstance(value, list | tuple) else [value]
