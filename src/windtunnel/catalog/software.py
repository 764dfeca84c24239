"""What each framework does at a date: the defaults it sets and the traits of its generation, each with its source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from windtunnel.catalog.files import data_names, load_data
from windtunnel.errors import Fault, FormatError, MissingError
from windtunnel.job.software import SoftwareDefault, SoftwareProfile, Traits

_MONTH = re.compile(r"\d{4}-(?:0[1-9]|1[0-2])")
_TRAITS: Mapping[str, Any] = get_type_hints(Traits)


class _Cited(NamedTuple):
    """A value and where it comes from."""

    value: object
    source: str


class _Entry(NamedTuple):
    """What changed in a framework from the month ``since`` on; ``recipes`` are defaults by start of a model's name."""

    since: str
    defaults: Mapping[str, _Cited]
    recipes: Mapping[str, Mapping[str, _Cited]]
    traits: Mapping[str, _Cited]


class _Framework(NamedTuple):
    name: str
    newest: str
    entries: tuple[_Entry, ...]


def framework_names() -> tuple[str, ...]:
    """Names of the frameworks with data, sorted."""
    return data_names("software")


def software_profile(framework: str, date: str | None = None, model: str = "") -> SoftwareProfile:
    """Traits and defaults of a framework at a year-month, newest known when ``date`` is None.

    Later entries overlay earlier ones; one applies from its month on. A recipe the framework ships for ``model``
    overlays its defaults. The default ``software.attention``, what ``auto`` means, is a mapping from accelerator
    vendor to backend, ``other`` for vendors it does not name.

    Raises:
        MissingError: no such framework, or a date before its first entry.
        FormatError: a date that is no year-month.
    """
    known = _read(_canonical(framework))
    return _profile(known.name, known.newest if date is None else _checked(date, known), _recipe_of(known, model))


def trait_sources(framework: str, date: str | None = None) -> Mapping[str, str]:
    """Where each trait of a framework at a date comes from. Raises as ``software_profile``."""
    known = _read(_canonical(framework))
    traits = _overlaid(known, known.newest if date is None else _checked(date, known), "")[1]
    return MappingProxyType({name: cited.source for name, cited in traits.items()})


@lru_cache(maxsize=256)
def _profile(name: str, date: str, recipe: str) -> SoftwareProfile:
    defaults, traits = _overlaid(_read(name), date, recipe)
    values: dict[str, Any] = {
        trait: tuple(cited.value) if isinstance(cited.value, list) else cited.value for trait, cited in traits.items()
    }
    return SoftwareProfile(
        framework=name,  # type: ignore[arg-type]
        date=date,
        traits=Traits(**values),
        defaults=tuple(SoftwareDefault(path, cited.value, cited.source) for path, cited in defaults.items()),
    )


def _recipe_of(known: _Framework, model: str) -> str:
    """The recipe whose name a model's name begins with, the longest; "" for none."""
    spelled = "-".join(model.lower().split())
    found = [name for entry in known.entries for name in entry.recipes if spelled.startswith(name)]
    return max(found, key=len, default="")


def _overlaid(known: _Framework, date: str, recipe: str) -> tuple[dict[str, _Cited], dict[str, _Cited]]:
    """Defaults and traits of all entries up to a date, later ones over earlier ones, a recipe's over all."""
    defaults: dict[str, _Cited] = {}
    traits: dict[str, _Cited] = {}
    for entry in known.entries:
        if entry.since <= date:
            defaults |= entry.defaults
            traits |= entry.traits
    for entry in known.entries:
        if entry.since <= date:
            defaults |= entry.recipes.get(recipe, {})
    return defaults, traits


def _checked(date: str, known: _Framework) -> str:
    if not _MONTH.fullmatch(date):
        raise FormatError(Fault("software.date", date[:40], "a year and month is due", "write it like 2025-02"))
    first = known.entries[0].since
    if date < first:
        rule = f"nothing is known of {known.name} before {first}"
        raise MissingError(Fault("software.date", date, rule, f"write {first} or later"))
    return date


@lru_cache(maxsize=1)
def _aliases() -> Mapping[str, str]:
    read: dict[str, Any] = {name: load_data("software", f"{name}.yaml") for name in framework_names()}
    return {alias: name for name, file in read.items() for alias in file["aliases"]}


def _canonical(framework: str) -> str:
    spelled = "-".join(framework.lower().replace("_", "-").split())
    if spelled in framework_names():
        return spelled
    if spelled in _aliases():
        return _aliases()[spelled]
    known = ", ".join(framework_names())
    raise MissingError(Fault("software.framework", framework[:60], "the framework is not known", f"known: {known}"))


@lru_cache(maxsize=32)
def _read(name: str) -> _Framework:
    """A framework's file, every value with its source. Raises FormatError where the file is not of this shape."""
    where = f"software/{name}.yaml"
    file = load_data("software", f"{name}.yaml")
    if not isinstance(file, Mapping) or file.keys() != {"framework", "aliases", "newest", "entries"}:
        raise _malformed(where, "a file has framework, aliases, newest and entries")
    entries = tuple(_entry(entry, f"{where}: entries[{index}]") for index, entry in enumerate(file["entries"]))
    months = [*(entry.since for entry in entries), file["newest"]]
    if file["framework"] != name or months != sorted(months) or not all(map(_MONTH.fullmatch, months)):
        raise _malformed(where, "it is named after its framework, and its months ascend to newest")
    if entries[0].traits.keys() != _TRAITS.keys():
        raise _malformed(
            where, f"the first entry sets every trait, not {sorted(entries[0].traits.keys() ^ _TRAITS.keys())}"
        )
    return _Framework(name, str(file["newest"]), entries)


def _entry(entry: Any, where: str) -> _Entry:
    if not isinstance(entry, Mapping) or not {"since"} < entry.keys() <= {"since", "defaults", "recipes", "traits"}:
        raise _malformed(where, "an entry has since, and defaults, recipes or traits")
    defaults = _all_cited(entry.get("defaults", {}), where)
    traits = _all_cited(entry.get("traits", {}), where)
    recipes = {str(name): _all_cited(values, f"{where}.{name}") for name, values in entry.get("recipes", {}).items()}
    if not traits.keys() <= _TRAITS.keys():
        raise _malformed(
            where, f"traits are fields of job.software.Traits, not {sorted(traits.keys() - _TRAITS.keys())}"
        )
    wrong = [name for name, cited in traits.items() if not _is(cited.value, _TRAITS[name])]
    if wrong:
        raise _malformed(where, f"values have the type of their field in job.software.Traits, not so {wrong}")
    paths = [*defaults, *(path for recipe in recipes.values() for path in recipe)]
    odd = [path for path in paths if not path.startswith(("plan.", "software."))]
    if odd:
        raise _malformed(where, f"defaults are plan and software paths, not {odd}")
    return _Entry(str(entry["since"]), defaults, recipes, traits)


def _all_cited(entries: Mapping[str, Any], where: str) -> dict[str, _Cited]:
    return {str(name): _cited(entry, f"{where}.{name}") for name, entry in entries.items()}


def _is(value: object, hint: object) -> bool:
    """Whether a value is of the type of a trait; a float may be written as a whole number, never as a boolean."""
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if get_origin(hint) is tuple:
        return isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)
    return type(value) is hint or (hint is float and type(value) is int)


def _cited(entry: Any, where: str) -> _Cited:
    complete = isinstance(entry, Mapping) and entry.keys() == {"value", "source"} and isinstance(entry["source"], str)
    if not complete or not entry["source"]:
        raise _malformed(where, "a value has a value and a source")
    return _Cited(entry["value"], entry["source"])


def _malformed(where: str, rule: str) -> FormatError:
    return FormatError(Fault(where, "", rule, "correct the data file"))
