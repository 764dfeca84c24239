"""``KEY=VALUE`` from a command line, and writing values at any path of a job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from windtunnel.catalog.faults import nearest, show
from windtunnel.catalog.files import parse_yaml
from windtunnel.errors import Fault, FormatError

_LONGEST_VALUE = 65_536
_NULLS = frozenset({"null", "Null", "NULL", "~"})
_BASED = frozenset({"model", "cluster.accelerator"})
"""Sections that may be a name: a value set below one turns the name into ``{base: NAME}``."""


def parse_overrides(texts: Iterable[str]) -> dict[str, object]:
    """``["plan.parallel.tp=4", …]`` as path to value; each value is a YAML scalar, list or mapping.

    Raises:
        FormatError: no ``=``, an unknown path, or a value that is not plain YAML.
    """
    faults: list[Fault] = []
    values: dict[str, object] = {}
    for text in texts:
        path, equals, value = text.partition("=")
        path = path.strip()
        if not equals or not path:
            faults.append(Fault("--set", show(text), "KEY=VALUE is due", "write it like plan.parallel.tp=4"))
            continue
        try:
            values[path] = _value(value, path)
        except FormatError as error:
            faults += error.faults
    faults += path_faults(values)
    if faults:
        raise FormatError(faults)
    return values


def path_faults(paths: Iterable[str]) -> list[Fault]:
    """A fault for each path that is no path of a job, naming the nearest ones."""
    return [_unknown(path) for path in paths if path not in job_paths() and not path.startswith("cluster.accelerator.")]


@lru_cache(maxsize=1)
def job_paths() -> tuple[str, ...]:
    """Every path of the job format, sections included."""
    from windtunnel.catalog.faults import paths_of
    from windtunnel.catalog.job_format import JobFile

    return tuple(paths_of(JobFile))


def _unknown(path: str) -> Fault:
    tail = path.rpartition(".")[2]
    same = [known for known in job_paths() if known.rpartition(".")[2] == tail]
    close = same[:3] or nearest(path, job_paths())
    remedy = f"did you mean {' or '.join(close)}?" if close else "`windtunnel show schema job` lists all paths"
    return Fault(path, "", "no such path in a job", remedy)


def _value(text: str, path: str) -> object:
    if len(text) > _LONGEST_VALUE:
        raise FormatError(Fault(path, show(text), f"a value is at most {_LONGEST_VALUE} characters", "use a job file"))
    if not text.strip():
        raise FormatError(Fault(path, "", "a value is due after =", "write null to empty a value"))
    # A document of nothing but null is an empty file to the reader of files; here it takes a value back.
    return None if text.strip() in _NULLS else parse_yaml(text, path)


def with_values(mapping: Mapping[str, object], values: Mapping[str, object]) -> dict[str, object]:
    """A copy of a job mapping with values written at full paths, shorter paths first; the original is left alone."""
    result = dict(mapping)
    for path in sorted(values, key=lambda path: path.count(".")):
        _write(result, "", path.split("."), values[path])
    return result


def _write(section: dict[str, object], above: str, parts: list[str], value: object) -> None:
    key, rest = parts[0], parts[1:]
    path = f"{above}.{key}" if above else key
    if not rest:
        section[key] = value
        return
    below = section.get(key)
    if isinstance(below, str) and path in _BASED:
        below = {"base": below}
    if below is not None and not isinstance(below, Mapping):
        remedy = f"correct it before setting {path}.{rest[0]}"
        raise FormatError(Fault(path, show(below), "a mapping of keys to values is due", remedy))
    section[key] = copied = dict(below or {})
    _write(copied, path, rest, value)
