"""Violations in words, and what the rules share."""

from __future__ import annotations

from collections.abc import Mapping

from windtunnel.errors import Fault
from windtunnel.job.draft import Draft
from windtunnel.job.legality.violation import Repair, Violation


def fault_of(violation: Violation) -> Fault:
    """A violation as the fault a user reads: path, the value there, the rule, and the repairs in words."""
    value = violation.values.get(violation.path)
    repairs = [text(repair) for repair in violation.repairs]
    remedy = "; or ".join(repairs) if repairs else "change one of these values"
    return Fault(violation.path, "" if value is None else spell(value), violation.message, remedy)


def text(repair: Repair) -> str:
    """``set plan.parallel.pp = 2``."""
    return "set " + " and ".join(f"{path} = {spell(value)}" for path, value in repair.changes.items())


def spell(value: object) -> str:
    """A value as a job file spells it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (tuple, frozenset)):
        return "[" + ", ".join(spell(item) for item in (sorted(value) if isinstance(value, frozenset) else value)) + "]"
    return "null" if value is None else str(value)


def repair(**changes: object) -> Repair:
    """A repair of plan paths; ``__`` in a name is a dot: ``repair(parallel__tp=2)``."""
    return Repair({f"plan.{name.replace('__', '.')}": value for name, value in changes.items()})


def divisors(number: int) -> tuple[int, ...]:
    """All divisors, ascending."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}))


def nearest(candidates: tuple[int, ...], wanted: int, count: int = 2) -> tuple[int, ...]:
    """The ``count`` candidates closest to ``wanted`` in ratio, the larger first on ties."""
    return tuple(sorted(candidates, key=lambda c: (max(c / wanted, wanted / c), -c))[:count])


def values_of(plan: Mapping[str, object], *paths: str) -> dict[str, object]:
    """The values a rule looked at, by full path."""
    return {f"plan.{path}": plan[path] for path in paths}


def shards_optimizer(draft: Draft) -> bool:
    """Whether optimizer state is divided over data-parallel ranks."""
    return draft.plan["sharding.strategy"] != "ddp"
