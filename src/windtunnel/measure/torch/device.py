"""The device at hand: how a worker takes it, and what it is called without saying whose it is."""

from __future__ import annotations

import os
import platform

import torch

from windtunnel.measure.torch.clock import Clock


def prepare(device: str, threads: int | None) -> None:
    """Set threads and seed of this process, and touch the device."""
    if threads is not None:
        torch.set_num_threads(threads)
    torch.manual_seed(0)
    torch.zeros(1, device=device)


def describe(device: str) -> tuple[tuple[str, str | float], ...]:
    """Name, memory and count of compute units or threads; no host name, no path."""
    if device == "cpu":
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        name = _processor()
        return (("memory_bytes", float(memory)), ("name", name), ("threads", float(torch.get_num_threads())))
    found = torch.cuda.get_device_properties(device)
    facts: list[tuple[str, str | float]] = [("name", found.name), ("memory_bytes", float(found.total_memory))]
    facts.append(("compute_units", float(found.multi_processor_count)))
    for name, read in (("clock_mhz", torch.cuda.clock_rate), ("temperature_c", torch.cuda.temperature)):
        try:
            facts.append((name, float(read(device))))
        except Exception:  # needs a management library that may be missing
            continue
    return tuple(sorted(facts))


def _processor() -> str:
    """The processor's own name."""
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def software() -> tuple[tuple[str, str], ...]:
    """Versions of what ran."""
    versions = {"torch": torch.__version__, "python": platform.python_version()}
    if torch.version.cuda:
        versions |= {"cuda": torch.version.cuda, "cudnn": str(torch.backends.cudnn.version())}
    if torch.version.hip:
        versions["rocm"] = torch.version.hip
    return tuple(sorted(versions.items()))


def clock(device: str) -> Clock:
    """A clock that times cold operands on an accelerator: in training, they come from memory."""
    return Clock(device, cold=device != "cpu")


def present(device: str) -> bool:
    """Whether torch can compute on ``device`` here."""
    return device == "cpu" or (device.split(":", maxsplit=1)[0] == "cuda" and torch.cuda.is_available())
