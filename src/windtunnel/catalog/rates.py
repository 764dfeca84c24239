"""Reads the rates and prices that order a search's proposals, each with its unit, meaning and source."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import lru_cache
from math import isfinite
from typing import Any, get_args

from windtunnel.catalog.files import load_data
from windtunnel.errors import Fault, FormatError
from windtunnel.job.plan import RecomputeModule, Strategy
from windtunnel.schedule.registry import schedule_names
from windtunnel.search.rates import Belief, EnvelopeRates, LadderPrices, Rates, RecomputeShares

FOLDER, FILE = "search", "proposals.yaml"
KINDS = ("measured", "cited", "assumed")
WORDS = ("unit", "means", "kind", "source")
"""What an entry says of its value, as text."""
GROUPS: Mapping[str, type] = {
    "envelope": EnvelopeRates,
    "recompute": RecomputeShares,
    "ladder": LadderPrices,
    "belief": Belief,
}
"""Groups of which every name is due, and no other."""
TABLES: Mapping[str, tuple[str, ...]] = {
    "bubble": schedule_names(),
    "modules": get_args(RecomputeModule),
    "sharding": tuple(name for name in get_args(Strategy) if name != "ddp"),
}
"""Groups of some of these names."""
WHOLE = ("sharding",)
"""Tables that have no value for what they leave out."""
_FRACTION = re.compile(r"\d{1,6}/[1-9]\d{0,5}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A rate or price with what it means, its unit, and where it comes from."""

    name: str
    value: float
    unit: str
    means: str
    kind: str
    source: str


@lru_cache(maxsize=1)
def rates() -> Rates:
    """The shipped rates and prices. Raises FormatError where the data file is not what ``search.rates`` asks for."""
    return rates_of(load_data(FOLDER, FILE))


@lru_cache(maxsize=1)
def every_rate() -> tuple[Rate, ...]:
    """The same, each with its birth certificate."""
    return tuple(_read(load_data(FOLDER, FILE)))


def rates_of(document: object) -> Rates:
    """The rates of a document of such a file. Raises FormatError with every unknown, missing or ill-typed entry."""
    groups: dict[str, Any] = {group: {} for group in (*GROUPS, *TABLES)}
    for rate in _read(document):
        group, _, name = rate.name.partition(".")
        groups[group][name] = rate.value
    return Rates(**{group: GROUPS[group](**found) if group in GROUPS else found for group, found in groups.items()})


def _read(document: object) -> list[Rate]:
    """Every entry, in the order of the file."""
    faults = list(_misnamed(document))
    if faults or not isinstance(document, Mapping):
        raise FormatError(faults)
    entries = [(f"{group}.{name}", entry) for group, found in document.items() for name, entry in found.items()]
    faults = [fault for name, entry in entries for fault in _ill_typed(name, entry)]
    if faults:
        raise FormatError(faults)
    return [Rate(name=name, **{**entry, "value": _number(entry["value"])}) for name, entry in entries]


def _misnamed(document: object) -> Iterator[Fault]:
    if not isinstance(document, Mapping):
        yield _fault("", "", "a mapping of groups is due", f"write {', '.join((*GROUPS, *TABLES))}")
        return
    yield from _names("", document, (*GROUPS, *TABLES), (*GROUPS, *TABLES))
    for group in (*GROUPS, *TABLES):
        found = document.get(group, {})
        if not isinstance(found, Mapping):
            yield _fault(group, str(found)[:60], "a mapping of entries is due", "write one entry a line")
        elif group in document:
            known = TABLES[group] if group in TABLES else tuple(item.name for item in fields(GROUPS[group]))
            yield from _names(group, found, known, known if group in GROUPS or group in WHOLE else ())


def _names(path: str, found: Mapping[Any, Any], known: tuple[str, ...], due: tuple[str, ...]) -> Iterator[Fault]:
    prefix = f"{path}." if path else ""
    for name in found:
        if name not in known:
            yield _fault(f"{prefix}{name}", "", "is not a known name", f"choose of {', '.join(known)}, or remove it")
    for name in due:
        if name not in found:
            yield _fault(f"{prefix}{name}", "", "is missing", "add it")


def _ill_typed(name: str, entry: object) -> Iterator[Fault]:
    if not isinstance(entry, Mapping):
        yield _fault(name, str(entry)[:60], "a mapping is due", f"write {{value, {', '.join(WORDS)}}}")
        return
    yield from _names(name, entry, ("value", *WORDS), ("value", *WORDS))
    if "value" in entry and _number(entry["value"]) is None:
        yield _fault(f"{name}.value", str(entry["value"])[:60], "a number from 0 up is due", "write 0.3, or 1/3")
    for word in WORDS:
        if word in entry and not (isinstance(entry[word], str) and entry[word].strip()):
            yield _fault(f"{name}.{word}", str(entry[word])[:60], "text is due", "say it in words")
    if isinstance(entry.get("kind"), str) and entry["kind"] not in KINDS:
        yield _fault(f"{name}.kind", entry["kind"], f"a kind is {', '.join(KINDS)}", "choose one")


def _number(value: object) -> float | None:
    """A number, or a fraction as text; None for anything else, and below 0."""
    if isinstance(value, str) and _FRACTION.fullmatch(value):
        return float(Fraction(value))
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value < 0:
        return None
    return float(value)


def _fault(path: str, value: str, rule: str, remedy: str) -> Fault:
    return Fault(f"{FOLDER}/{FILE}: {path}" if path else f"{FOLDER}/{FILE}", value, rule, remedy)
