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
FITTED = ("global", "scoped")
FILE = "simulated.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """How a fitted constant came to its value.

    ``bounds`` of the search; ``neutral`` where nothing is known; ``on``: the sources whose runs move with it, of which
    a scoped one saw half of the series; ``records``: how many runs; ``residual``: their median error; ``range``: over
    the refits with one source left out; ``helps``: how much smaller the mean clipped error of left-out runs is with it
    than without, give or take ``error`` over sources; ``better`` and ``worse``: how many sources, left out, are better
    and worse with it.
    """

    bounds: tuple[float, float]
    neutral: float
    on: tuple[str, ...] = ()
    records: int = 0
    residual: float | None = None
    range: tuple[float, float] | None = None
    helps: float | None = None
    error: float | None = None
    better: int = 0
    worse: int = 0


@dataclass(frozen=True, slots=True)
class Certificate:
    """Where a constant comes from; ``fitted`` for one that ``windtunnel calibrate`` fits."""

    name: str
    value: float
    kind: str
    source: str
    fitted: Fitted | None = None


@lru_cache(maxsize=1)
def certificates() -> tuple[Certificate, ...]:
    """Every constant with its value, kind and source. Raises FormatError when one lacks a certificate."""
    groups: Any = load_data("calibration", FILE)
    return tuple(
        _certificate(f"{group}.{name}", entry) for group, entries in groups.items() for name, entry in entries.items()
    )


def _certificate(name: str, entry: Any) -> Certificate:
    known = isinstance(entry, Mapping) and {"value", "kind", "source"} <= entry.keys() and entry["kind"] in KINDS
    extra = set(entry) - {"value", "kind", "source"} if known else set()
    birth = {"bounds", "neutral", "fitted"}
    if not known or extra not in (set(), birth) or (extra and entry["kind"] not in FITTED):
        rule = f"a constant has a value, a kind of {', '.join(KINDS)} and a source; a fitted one how it was fitted too"
        raise FormatError(Fault(f"calibration/{FILE}: {name}", str(entry), rule, "complete the entry"))
    fitted = _fitted(entry) if extra else None
    return Certificate(name, float(entry["value"]), str(entry["kind"]), str(entry["source"]), fitted)


def _fitted(entry: Mapping[str, Any]) -> Fitted:
    born = entry["fitted"]
    low, high = entry["bounds"]
    return Fitted(
        bounds=(float(low), float(high)),
        neutral=float(entry["neutral"]),
        on=tuple(born["on"]),
        records=int(born["records"]),
        residual=float(born["residual"]),
        range=(float(born["range"][0]), float(born["range"][1])),
        helps=float(born["helps"]),
        error=float(born["error"]),
        better=int(born["better"]),
        worse=int(born["worse"]),
    )


@lru_cache(maxsize=1)
def constants() -> Constants:
    """The shipped constants. Raises FormatError when the data file and the values do not match name by name."""
    values = {certificate.name: certificate.value for certificate in certificates()}
    groups = get_type_hints(Constants)
    expected = {f"{group.name}.{item.name}" for group in fields(Constants) for item in fields(groups[group.name])}
    if expected != values.keys():
        odd = ", ".join(sorted(expected ^ values.keys()))
        fault = Fault(
            f"calibration/{FILE}", odd, "its names are those of job.constants.Constants", "add or remove them"
        )
        raise FormatError(fault)
    return Constants(
        **{
            group.name: groups[group.name](
                **{item.name: values[f"{group.name}.{item.name}"] for item in fields(groups[group.name])}
            )
            for group in fields(Constants)
        }
    )
