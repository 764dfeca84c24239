"""Reads the constants of the simulated cost source, and their birth certificates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, get_type_hints

from windtunnel.catalog.files import load_data
from windtunnel.errors import Fault, FormatError
from windtunnel.job.constants import Constants

KINDS = ("measured", "cited", "global", "scoped", "assumed")


@dataclass(frozen=True, slots=True)
class Certificate:
    """Where a constant comes from."""

    name: str
    value: float
    kind: str
    source: str


@lru_cache(maxsize=1)
def certificates() -> tuple[Certificate, ...]:
    """Every constant with its value, kind and source. Raises FormatError when one lacks a certificate."""
    groups: Any = load_data("calibration", "simulated.yaml")
    return tuple(
        _certificate(f"{group}.{name}", entry) for group, entries in groups.items() for name, entry in entries.items()
    )


def _certificate(name: str, entry: Any) -> Certificate:
    complete = isinstance(entry, Mapping) and entry.keys() == {"value", "kind", "source"} and entry["kind"] in KINDS
    if not complete:
        rule = f"a constant has a value, a kind of {', '.join(KINDS)} and a source"
        raise FormatError(Fault(f"calibration/simulated.yaml: {name}", str(entry), rule, "complete the entry"))
    return Certificate(name, float(entry["value"]), str(entry["kind"]), str(entry["source"]))


@lru_cache(maxsize=1)
def constants() -> Constants:
    """The shipped constants. Raises FormatError when the data file and the values do not match name by name."""
    values = {certificate.name: certificate.value for certificate in certificates()}
    groups = get_type_hints(Constants)
    expected = {f"{group.name}.{item.name}" for group in fields(Constants) for item in fields(groups[group.name])}
    if expected != values.keys():
        odd = ", ".join(sorted(expected ^ values.keys()))
        raise FormatError(
            Fault(
                "calibration/simulated.yaml",
                odd,
                "its names are those of job.constants.Constants",
                "add or remove them",
            )
        )
    return Constants(
        **{
            group.name: groups[group.name](
                **{item.name: values[f"{group.name}.{item.name}"] for item in fields(groups[group.name])}
            )
            for group in fields(Constants)
        }
    )
