"""Kernels of all tempers, named by tasks of the tests; they run in a worker."""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass

from windtunnel.cost.profile import Key, key
from windtunnel.measure.task import Task


def prepare(device: str, threads: int | None) -> None:
    """Nothing to set up."""


def key_of(name: str) -> Key:
    return key(name, "forward", "fp32", {"n": 1})


def task(kind: str, name: str | None = None, share: float = 0.1) -> Task:
    """A task of the kernel ``kind`` below."""
    named = name or kind
    return Task(
        keys=(key_of(named),), kernel=f"kernels:{kind}", arguments=(named,), label=named, share=share, uncertainty=1
    )


@dataclass
class Steady:
    name: str
    seconds: float = 1e-3

    def run(self) -> dict[Key, float]:
        time.sleep(1e-4)
        return {key_of(self.name): self.seconds}


def steady(device: str, name: str) -> Steady:
    return Steady(name)


class Segfault(Steady):
    def run(self) -> dict[Key, float]:
        ctypes.string_at(0)
        return {}


def segfault(device: str, name: str) -> Steady:
    return Segfault(name)


class Hang(Steady):
    def run(self) -> dict[Key, float]:
        time.sleep(3600)
        return {}


def hang(device: str, name: str) -> Steady:
    return Hang(name)


class Eat(Steady):
    def run(self) -> dict[Key, float]:
        held = []
        while True:
            held.append(bytearray(2**26))


def eat(device: str, name: str) -> Steady:
    return Eat(name)


class Slow(Steady):
    """Warms up: every run is faster than the one before, until it settles."""

    runs = 0

    def run(self) -> dict[Key, float]:
        self.runs += 1
        return {key_of(self.name): 1e-3 * (1 + 4 / self.runs**2)}


def slow(device: str, name: str) -> Steady:
    return Slow(name)
