"""Work spread over the cores at hand or over Ray: the same function, the same items, answers as they come."""

from __future__ import annotations

import importlib
import os
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from windtunnel.cli.workers import begin
from windtunnel.errors import Fault, FormatError, MissingError

GLANCE = 0.2
"""Seconds between two looks at whether to stop."""
Function = Callable[[Any], Any]
Stop = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Lost:
    """An item whose process or machine died."""

    why: str


def on_cores(function: Function, items: Sequence[Any], processes: int, stop: Stop) -> Iterator[tuple[int, Any]]:
    """Index and answer of every item, from processes here. If one dies, what it worked on is tried once more, each item
    in a process of its own: the one that dies again is lost, and no other."""
    pool = ProcessPoolExecutor(processes, initializer=begin)
    waiting = {pool.submit(function, item): index for index, item in enumerate(items)}
    broken: list[int] = []
    try:
        for future in _as_they_end(waiting, stop):
            try:
                yield waiting[future], future.result()
            except BrokenProcessPool:
                broken.append(waiting[future])
    finally:
        running = list((pool._processes or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        if stop():
            for process in running:
                process.terminate()
    for index in broken:
        if stop():
            return
        with ProcessPoolExecutor(1, initializer=begin) as alone:
            try:
                yield index, alone.submit(function, items[index]).result()
            except BrokenProcessPool:
                yield index, Lost("its process died")


def _as_they_end(waiting: dict[Future[Any], int], stop: Stop) -> Iterator[Future[Any]]:
    left = set(waiting)
    while left and not stop():
        ended, left = wait(left, timeout=GLANCE, return_when=FIRST_COMPLETED)
        yield from sorted(ended, key=waiting.__getitem__)


def on_ray(
    function: Function, items: Sequence[Any], address: str | None, workers: int, stop: Stop
) -> Iterator[tuple[int, Any]]:
    """Index and answer of every item, from the cluster at ``address``, or from ``workers`` that Ray starts here.

    Raises MissingError without ray, FormatError where the cluster cannot be reached.
    """
    try:
        ray = importlib.import_module("ray")
    except ModuleNotFoundError:
        remedy = "pip install 'windtunnel[ray]', or add --local"
        raise MissingError(Fault("ray", "", "a portfolio runs on Ray, which is not installed", remedy)) from None
    if address is not None:
        _check_listens(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    here = {"num_cpus": workers, "include_dashboard": False} if address is None else {"address": address}
    asked_to_stop = signal.getsignal(signal.SIGTERM)  # Ray puts its own in place
    try:
        ray.init(log_to_driver=False, logging_level="ERROR", **here)
        signal.signal(signal.SIGTERM, asked_to_stop)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise _unreachable(address, error) from None
    try:
        remote = ray.remote(num_cpus=1, max_retries=1)(function)
        waiting = {remote.remote(item): index for index, item in enumerate(items)}
        while waiting and not stop():
            ended, _ = ray.wait(list(waiting), timeout=GLANCE)
            for reference in ended:
                yield waiting.pop(reference), _got(ray, reference)
    finally:
        ray.shutdown()


def _check_listens(address: str) -> None:
    """Ray tries for minutes where nothing listens at HOST:PORT. Raises FormatError."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if not colon or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10.0).close()
    except (OSError, OverflowError) as error:
        raise _unreachable(address, error) from None


def _unreachable(address: str | None, error: Exception) -> FormatError:
    rule = f"the Ray cluster cannot be reached: {' '.join(str(error).split())[:200]}"
    return FormatError(Fault("--address", address or "", rule, "see ray status, or add --local"))


def _got(ray: Any, reference: Any) -> Any:
    try:
        return ray.get(reference)
    except ray.exceptions.RayError as error:
        return Lost(" ".join(str(error).split())[-300:])
