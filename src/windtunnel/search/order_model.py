"""Orders of a pipeline as a constraint problem: starts in whole ticks, one action at a time, a cap on what is alive."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import ceil, gcd, log10
from typing import Any, Literal

from windtunnel.errors import Fault, LegalityError, MissingError
from windtunnel.schedule.action import Action, Kind, Order
from windtunnel.step.timeline import ChunkDurations, Timeline

Key = tuple[Kind, int, int]
"""Kind, micro-batch, global chunk."""

Objective = Literal["makespan", "span"]

DIGITS = 5
"""Significant digits of the longest duration of a stage."""


@dataclass(slots=True)
class Problem:
    """The variables of the model: the start of every action in ticks."""

    model: Any
    shape: Order
    split: bool
    ticks: dict[Key, int]
    hop: int
    scale: float
    """Ticks per second."""
    starts: dict[Key, Any] = field(default_factory=dict)

    def end(self, key: Key) -> Any:
        return self.starts[key] + self.ticks[key]

    @property
    def horizon(self) -> int:
        """One action at a time, a hop after each."""
        return sum(self.ticks.values()) + self.hop * len(self.ticks)

    @property
    def cells(self) -> Iterator[tuple[int, int]]:
        """Every micro-batch on every global chunk."""
        return product(range(self.shape.num_microbatches), range(self.shape.num_chunks))


def order_problem(
    known: Order, durations: Sequence[ChunkDurations], transfer: float, chunks_alive: int, objective: Objective
) -> Problem:
    """The orders with the placement and the kinds of actions of ``known`` that keep ``chunks_alive`` on a rank.

    Raises MissingError without ortools.
    """
    problem = _problem(known, durations, transfer)
    _place(problem)
    _precede(problem)
    _cap(problem, chunks_alive)
    _minimise(problem, objective)
    return problem


def cp_model() -> Any:
    """The solver's module. Raises MissingError where the extra is not installed."""
    try:
        from ortools.sat.python import cp_model as module
    except ImportError:
        rule = "the optimum needs the package ortools, which is not installed"
        raise MissingError(Fault("--gap", "", rule, "pip install windtunnel[ilp]")) from None
    return module


def _problem(known: Order, durations: Sequence[ChunkDurations], transfer: float) -> Problem:
    """The empty model; backwards are whole only where all of them are."""
    split = any(action.kind == "W" for row in known.actions for action in row)
    seconds: dict[tuple[Kind, int], float] = {}
    for chunk, each in enumerate(durations):
        seconds["F", chunk] = each.forward
        if split:
            seconds["B", chunk], seconds["W", chunk] = each.backward_input, each.backward_weight
        else:
            seconds["BW", chunk] = each.backward_input + each.backward_weight
    scale = _scale([*seconds.values(), transfer], known.virtual_stages)
    ticks: dict[Key, int] = {
        (kind, microbatch, chunk): round(lasts * scale)
        for (kind, chunk), lasts in seconds.items()
        for microbatch in range(known.num_microbatches)
    }
    return Problem(cp_model().CpModel(), known, split, ticks, round(transfer * scale), scale)


def _scale(seconds: Sequence[float], virtual_stages: int) -> float:
    """Ticks per second: the fewest that tell ``seconds`` apart; a stage's share for a chunk stays a whole number."""
    longest = max(seconds)
    if longest == 0:
        return 1.0
    scale = virtual_stages * 10.0 ** (DIGITS - ceil(log10(longest)))
    return scale / (gcd(*(round(each * scale) for each in seconds)) or 1)


def _host(shape: Order, microbatch: int, chunk: int) -> tuple[int, int]:
    """(rank, local chunk) that runs the micro-batch there; where a rank holds two whole stages, each half has one."""
    direction = microbatch // shape.microbatches_per_chunk
    for rank, held in enumerate(shape.placement):
        if shape.microbatches_per_chunk == shape.num_microbatches:
            if chunk in held:
                return rank, held.index(chunk)
        elif held[direction] == chunk:
            return rank, direction
    raise AssertionError(f"no rank holds chunk {chunk}")


def _place(problem: Problem) -> None:
    """Every action once, a rank one at a time, micro-batches of a direction in turn."""
    model, shape = problem.model, problem.shape
    running: list[list[Any]] = [[] for _ in range(shape.num_stages)]
    for key, ticks in problem.ticks.items():
        start = problem.starts[key] = model.new_int_var(0, problem.horizon, str(key))
        running[_host(shape, *key[1:])[0]].append(model.new_fixed_size_interval_var(start, ticks, f"run {key}"))
    for intervals in running:
        model.add_no_overlap(intervals)
    each = shape.microbatches_per_chunk
    for kind, microbatch, chunk in problem.ticks:
        if microbatch % each:
            model.add(problem.end((kind, microbatch - 1, chunk)) <= problem.starts[kind, microbatch, chunk])


def _precede(problem: Problem) -> None:
    """Inputs come first, a hop earlier where they come from another rank."""
    shape = problem.shape
    for microbatch, chunk in problem.cells:
        for needed, key in _needs(problem, microbatch, chunk):
            away = _host(shape, *needed[1:])[0] != _host(shape, *key[1:])[0]
            problem.model.add(problem.end(needed) + problem.hop * away <= problem.starts[key])


def _needs(problem: Problem, microbatch: int, chunk: int) -> Iterator[tuple[Key, Key]]:
    """(producer, consumer) pairs that end in this chunk."""
    backward: Kind = "B" if problem.split else "BW"
    if chunk:
        yield ("F", microbatch, chunk - 1), ("F", microbatch, chunk)
    yield ("F", microbatch, chunk), (backward, microbatch, chunk)
    if chunk < problem.shape.num_chunks - 1:
        yield (backward, microbatch, chunk + 1), (backward, microbatch, chunk)
    if problem.split:
        yield ("B", microbatch, chunk), ("W", microbatch, chunk)


def _cap(problem: Problem, chunks_alive: int) -> None:
    """At no moment more micro-batches on the chunks of a rank."""
    last: Kind = "W" if problem.split else "BW"
    model, shape = problem.model, problem.shape
    lives: list[list[Any]] = [[] for _ in range(shape.num_stages)]
    for microbatch, chunk in problem.cells:
        start, end = problem.starts["F", microbatch, chunk], problem.end((last, microbatch, chunk))
        length = model.new_int_var(0, problem.horizon, "")
        rank, _ = _host(shape, microbatch, chunk)
        lives[rank].append(model.new_interval_var(start, length, end, f"alive {microbatch} {chunk}"))
    for alive in lives:
        model.add_cumulative(alive, [1] * len(alive), chunks_alive)


def _minimise(problem: Problem, objective: Objective) -> None:
    """The longest rank, from its first forward or from the start of all; no shorter than its work."""
    model, shape = problem.model, problem.shape
    longest = model.new_int_var(0, problem.horizon, "longest")
    for rank in range(shape.num_stages):
        keys = [key for key in problem.ticks if _host(shape, *key[1:])[0] == rank]
        begin: Any = 0
        if objective == "span":
            begin = model.new_int_var(0, problem.horizon, "")
            model.add_min_equality(begin, [problem.starts[key] for key in keys if key[0] == "F"])
        for key in keys:
            model.add(longest >= problem.end(key) - begin)
        model.add(longest >= sum(problem.ticks[key] for key in keys))
    model.minimize(longest)


def start_from(problem: Problem, timeline: Timeline) -> None:
    """Hand the solver an order it may improve; a whole backward among split ones is B and then W."""
    for kind, microbatch, chunk, start, _ in (span for rank in timeline.spans for span in rank):
        tick = round(start * problem.scale)
        parts: tuple[Kind, ...] = ("B", "W") if kind == "BW" and problem.split else (kind,)
        for part in parts:
            key: Key = (part, microbatch, chunk)
            problem.model.add_hint(problem.starts[key], tick)
            tick += problem.ticks[key]


def solve(problem: Problem, time_limit: float) -> tuple[Any, bool] | None:
    """The solver with what it found in ``time_limit`` seconds, and whether that is proven; None where it found nothing.

    Raises LegalityError where there is no order at all.
    """
    module = cp_model()
    solver = module.CpSolver()
    solver.parameters.max_time_in_seconds = time_limit
    solver.parameters.random_seed = 0
    status = solver.solve(problem.model)
    if status == module.UNKNOWN:
        return None
    if status not in (module.OPTIMAL, module.FEASIBLE):
        raise LegalityError(Fault("--gap", "", "no order keeps to this memory cap", "raise the cap"))
    return solver, status == module.OPTIMAL


def read_order(problem: Problem, solver: Any) -> Order:
    """Actions by start; those that take no time stand before those that start with them."""
    shape = problem.shape
    rows: list[list[tuple[int, int, int, Action]]] = [[] for _ in range(shape.num_stages)]
    for position, ((kind, microbatch, chunk), start) in enumerate(problem.starts.items()):
        rank, local = _host(shape, microbatch, chunk)
        begun = solver.value(start)
        end = begun + problem.ticks[kind, microbatch, chunk]
        rows[rank].append((begun, end, position, Action(kind, microbatch, local)))
    actions = tuple(tuple(entry[-1] for entry in sorted(row)) for row in rows)
    return Order("optimum", shape.num_stages, shape.num_microbatches, shape.virtual_stages, actions, shape.placement)
