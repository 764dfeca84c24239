"""Everything the catalog holds, by kind and name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from windtunnel.catalog.faults import did_you_mean, show
from windtunnel.catalog.files import data_names, load_data
from windtunnel.catalog.hardware import accelerator_aliases
from windtunnel.catalog.models import model_aliases, model_names
from windtunnel.errors import Fault, MissingError
from windtunnel.schedule.registry import find, schedule_names

FOLDERS = ("accelerators", "clusters", "models", "software")


def names_by_kind() -> dict[str, tuple[str, ...]]:
    """Accelerators, clusters, models, schedules and software, each with its names."""
    return {
        kind: schedule_names() if kind == "schedules" else data_names(kind) for kind in sorted((*FOLDERS, "schedules"))
    }


def entry(name: str) -> dict[str, Any]:
    """A catalog entry as its file spells it, sources included; of a schedule, what is asked of a job that uses it.

    Raises:
        MissingError: no kind has an entry of that name or alias; names the nearest.
    """
    wanted = name.strip().casefold()
    for folder in FOLDERS:
        if wanted in data_names(folder):
            return _file(folder, wanted)
    if wanted in schedule_names():
        return _schedule(wanted)
    for folder, canonical in _aliased(wanted):
        return _file(folder, canonical)
    known = [known for names in names_by_kind().values() for known in names]
    raise MissingError(Fault("NAME", show(name), "the catalog has no such entry", did_you_mean(name, known)))


def _file(folder: str, name: str) -> dict[str, Any]:
    content = load_data(folder, f"{name}.yaml")
    return dict(content) if isinstance(content, dict) else {"entries": content}


def _schedule(name: str) -> dict[str, Any]:
    schedule = find(name)
    chunks = schedule.virtual_stages
    return {
        "name": name,
        "chunks_per_stage": f"{schedule.min_virtual_stages} or more" if chunks is None else chunks,
        "options": sorted(schedule.uses),
    }


def _aliased(wanted: str) -> Iterator[tuple[str, str]]:
    for alias, canonical in accelerator_aliases().items():
        if alias.casefold() == wanted:
            yield "accelerators", canonical
    for model in model_names():
        if wanted in {alias.casefold() for alias in model_aliases(model)}:
            yield "models", model
