"""The provably best order of a small pipeline under a memory cap, by constraint programming (extra ``ilp``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor

from windtunnel.errors import Fault, LegalityError
from windtunnel.schedule.action import Order
from windtunnel.schedule.in_flight import peak_in_flight
from windtunnel.search.order_model import Objective, order_problem, read_order, solve, start_from
from windtunnel.step.timeline import ChunkDurations, Timeline, execute


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimum:
    """``order`` takes ``makespan``; none takes less than ``bound``; ``proven`` where the two are one."""

    makespan: float
    bound: float
    proven: bool
    order: Order


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A schedule of ``makespan`` against the best order with its placement and actions under ``memory_cap``."""

    makespan: float
    memory_cap: float
    best: Optimum

    @property
    def above(self) -> float:
        """Seconds above the best order known, not counting what the solver's ticks round away."""
        return max(0.0, self.makespan - self.best.makespan)

    @property
    def above_at_most(self) -> float:
        """Seconds above any order at all; as ``above`` where the best one is proven."""
        return max(0.0, self.makespan - self.best.bound)


def gap(
    order: Order,
    durations: Sequence[ChunkDurations],
    transfer: float,
    memory_cap: float | None,
    *,
    time_limit: float = 20.0,
) -> Gap:
    """How far ``order`` is from the optimum under ``memory_cap``, by default its own peak.

    Raises MissingError without ortools, LegalityError where nothing was found.
    """
    cap = max(peak_in_flight(order)) if memory_cap is None else memory_cap
    best = optimum(order, durations, transfer, cap, time_limit=time_limit)
    return Gap(makespan=execute(order, durations, transfer).makespan, memory_cap=cap, best=best)


def optimum(
    known: Order,
    durations: Sequence[ChunkDurations],
    transfer: float,
    memory_cap: float,
    *,
    objective: Objective = "makespan",
    time_limit: float = 20.0,
) -> Optimum:
    """The shortest order with the placement and the kinds of actions of ``known``, where the search starts.

    Or the best one found in ``time_limit`` seconds, with what is proven about it. ``durations`` by global chunk,
    ``transfer`` per hop between ranks; ``memory_cap`` in micro-batches of a stage alive on a rank, from the start of F
    to the end of W. The objective ``makespan`` counts from the first action of all; ``span`` is the longest rank, each
    from its own first action on (the step time where ranks do not wait for one another between steps: Qi et al., 2024).
    Micro-batches being alike, every chunk takes them in turn without loss. Actions never run side by side, which no
    overlapped pair beats that lasts the sum of its parts.
    Raises MissingError without ortools, LegalityError where nothing was found.
    """
    alive = floor(memory_cap * known.virtual_stages + 1e-9)
    problem = order_problem(known, durations, transfer, alive, objective)
    start = execute(known, durations, transfer)
    start_from(problem, start)
    found = solve(problem, time_limit)
    if found is None:
        return _unimproved(start, memory_cap, objective, time_limit)
    solver, proven = found
    order = read_order(problem, solver)
    seconds = _measured(execute(order, durations, transfer), objective)
    bound = seconds if proven else min(seconds, solver.best_objective_bound / problem.scale)
    return Optimum(makespan=seconds, bound=bound, proven=proven, order=order)


def _unimproved(start: Timeline, memory_cap: float, objective: Objective, time_limit: float) -> Optimum:
    """The order that was known, which takes no less than its busiest rank. Raises LegalityError where it is too big."""
    if max(peak_in_flight(start.order)) > memory_cap:
        rule, remedy = f"no order was found in {time_limit:g} seconds", "give more seconds or fewer micro-batches"
        raise LegalityError(Fault("--time-limit", f"{time_limit:g}", rule, remedy))
    busiest = max(start.busy(rank) for rank in range(len(start.spans)))
    return Optimum(makespan=_measured(start, objective), bound=busiest, proven=False, order=start.order)


def _measured(timeline: Timeline, objective: Objective) -> float:
    if objective == "makespan":
        return timeline.makespan
    return max(row[-1].end - row[0].start for row in timeline.spans)
