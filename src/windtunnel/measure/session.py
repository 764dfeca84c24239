"""A measuring session: a profile's file that grows by every result, taken up again where it was left."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from windtunnel.catalog.profiles import append_entries, read_profile, repair, write_profile
from windtunnel.cost.profile import Profile, merge
from windtunnel.errors import Fault, MissingError
from windtunnel.measure.harness import Bench, Result, run
from windtunnel.measure.task import Task


def session(
    tasks: Sequence[Task], path: str, bench: Bench, budget: float | None = None, empty: Profile | None = None
) -> Iterator[Result]:
    """Measure ``tasks`` into the profile at ``path``: every result is on disk when it is yielded.

    Keys the file has already are left alone. Raises MissingError without torch or the device, FormatError where the
    file is of another device or software. ``empty`` describes the machine; by default it is asked.
    """
    empty = empty or environment(bench)
    if os.path.exists(path):
        repair(path)
        known = read_profile(path)
        merge(known, empty)
    else:
        known = empty
        write_profile(path, empty)
    for result in run(tasks, bench, known=frozenset(entry.key for entry in known.entries), budget=budget):
        append_entries(path, result.entries)
        yield result


def environment(bench: Bench) -> Profile:
    """A profile without entries: device, software and method of this machine."""
    try:
        importlib.import_module("torch.nn")  # a folder named torch may pass for the package itself
        device = importlib.import_module("windtunnel.measure.torch.device")
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "torch.nn"):
            raise
        remedy = "pip install 'windtunnel[measure]', or a torch for your accelerator"
        raise MissingError(Fault("torch", "", "measuring runs on torch, which is not installed", remedy)) from None
    if not device.present(bench.device):
        rule = "torch sees no such device here"
        raise MissingError(Fault("--device", bench.device, rule, "use cpu, or a torch built for the accelerator"))
    software = (*_layers(bench.layers), *device.software())
    return Profile(
        device=device.describe(bench.device), software=tuple(sorted(software)), method=_method(bench), entries=()
    )


def _layers(whose: str) -> tuple[tuple[str, str], ...]:
    """Layers of a framework are software of their own: their seconds never mix with those of our blocks."""
    if whose == "blocks":
        return ()
    try:
        module = f"windtunnel.measure.torch.{whose.replace('-', '_')}_layers"
        version = importlib.import_module(module).VERSION
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("windtunnel"):
            raise
        raise MissingError(Fault("--layers", whose, "is not installed", f"pip install {whose}")) from None
    return (("layers", version),)


def _method(bench: Bench) -> tuple[tuple[str, str | float], ...]:
    effort = bench.effort
    return (
        ("co_runners", float(bench.co_runners)),
        ("date", datetime.now(UTC).strftime("%Y-%m-%d")),
        ("flush", "none" if bench.device == "cpu" else "256 MiB written before each sample"),
        ("operands", "normal"),
        ("repeats", f"until the median is known to 1 %, {effort.least} to {effort.most}, {effort.sampling:g} s"),
        ("threads", float(bench.threads or 0)),
        ("warm_up", f"until the median settles to 1 %, at most {effort.warm_up:g} s"),
    )
