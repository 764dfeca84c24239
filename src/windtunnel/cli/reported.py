"""What a run reports, believed only where it can be true."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from windtunnel.cost.kernels.gemm import peak
from windtunnel.job.job import Job
from windtunnel.projection.flops import flops_per_token
from windtunnel.projection.memory import project_memory
from windtunnel.search.screen import Candidate
from windtunnel.search.trial import Outcome
from windtunnel.units import Dimension, UnitError, parse

LIMIT = 65_536
"""Bytes of a result file."""
MOST_STEPS = 1_000_000_000
_OUT_OF_MEMORY = re.compile(r"out of memory|OutOfMemoryError|RESOURCE_EXHAUSTED", re.IGNORECASE)


def outcome_of(outcome: Outcome, candidate: Candidate, seconds: float) -> Outcome:
    """The outcome with what it took: wall seconds, and accelerator-seconds."""
    return replace(outcome, seconds=seconds, cost=seconds * candidate.job.cluster.num_accelerators)


def reported(result: Path, code: int, said: str, seconds: float, job: Job) -> Outcome:
    """The outcome of a run that ended with ``code`` after ``seconds`` and printed ``said`` last."""
    if code != 0:
        if _OUT_OF_MEMORY.search(said):
            return Outcome(status="oom", why=_last(said))
        ended = f"signal {-code}" if code < 0 else f"exit code {code}"
        return Outcome(status="crashed", why=f"{ended}: {_last(said)}")
    try:
        return _read(result, seconds, job)
    except _UntrueError as error:
        return Outcome(status="invalid", why=str(error))


class _UntrueError(Exception):
    """Why a report cannot be believed."""


def _read(result: Path, seconds: float, job: Job) -> Outcome:
    document = _document(result)
    if document.get("oom") is True:
        return Outcome(status="oom", why="the run reports that memory ran out")
    step_time = _quantity(document, "step_time", "time")
    if step_time is None:
        raise _UntrueError("the result has no step_time")
    steps = document.get("steps", 1)
    if not isinstance(steps, int) or isinstance(steps, bool) or not 1 <= steps <= MOST_STEPS:
        raise _UntrueError(f"steps is a positive number, not {str(steps)[:20]!r}")
    if step_time * steps > seconds:
        many = f"{steps} steps of " if steps > 1 else ""
        raise _UntrueError(f"{many}{step_time:g} s do not fit in a run of {seconds:.3g} s: step_time is in seconds")
    if step_time < (least := _least_seconds(job)):
        raise _UntrueError(f"a step of {step_time:g} s is faster than peak FLOP/s allow, {least:.3g} s")
    memory = _quantity(document, "peak_memory", "bytes")
    if memory is not None:
        _check_memory(memory, job)
    return Outcome(status="ok", step_time=step_time, peak_device=memory, provenance={"measured": 1.0})


def _document(result: Path) -> Mapping[str, Any]:
    try:
        if not result.is_file() or os.path.getsize(result) > LIMIT:
            raise _UntrueError(f"no result, or one of more than {LIMIT} bytes")
        document = json.loads(result.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise _UntrueError(f"the result is not JSON: {error}") from None
    if not isinstance(document, Mapping):
        raise _UntrueError("the result is no JSON object")
    return document


def _quantity(document: Mapping[str, Any], name: str, dimension: Dimension) -> float | None:
    """Seconds or bytes, as a number or with a unit."""
    value = document.get(name)
    if value is None:
        return None
    try:
        number = parse(value, dimension) if isinstance(value, str) else value
    except UnitError as error:
        raise _UntrueError(f"{name}: {error}") from None
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number <= sys.float_info.max:
        raise _UntrueError(f"{name} is a positive number or a quantity with its unit, not {str(value)[:20]!r}")
    return float(number)


def _least_seconds(job: Job) -> float:
    """A step in which every accelerator works at its peak."""
    batch = job.plan.batch
    flops = flops_per_token(job).causal_half * batch.global_batch_size * batch.sequence_length
    return flops / (peak(job.cluster.accelerator, job.plan.precision.compute) * job.cluster.num_accelerators)


def _check_memory(reported_bytes: float, job: Job) -> None:
    capacity = job.cluster.accelerator.hbm_capacity
    least = min(stage.weights for stage in project_memory(job).stages)
    if not least <= reported_bytes <= capacity:
        raise _UntrueError(
            f"peak_memory of {reported_bytes:g} bytes is not between the weights of a rank, {least:.3g}, "
            f"and the capacity, {capacity:.3g}: it is in bytes"
        )


def _last(said: str) -> str:
    """The last words of a run, on one line."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return " | ".join(lines[-3:])[-500:] if lines else "it said nothing"
