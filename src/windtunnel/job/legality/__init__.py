"""Whether a job can run: one function per rule, each with what it looked at and the nearest repairs."""

from __future__ import annotations

from dataclasses import replace

from windtunnel.job.draft import Draft
from windtunnel.job.legality import batch, framework, grid, model, moe, offload, pipeline
from windtunnel.job.legality.grid import grids, minimum_accelerators
from windtunnel.job.legality.violation import Repair, Rule, Violation
from windtunnel.job.resolve import amend

__all__ = ["RULES", "Repair", "Rule", "Violation", "grids", "minimum_accelerators", "violations"]

RULES: tuple[Rule, ...] = (
    *grid.RULES, *pipeline.RULES, *batch.RULES, *model.RULES, *moe.RULES, *framework.RULES, *offload.RULES,
)  # fmt: skip


def violations(draft: Draft, *, repairs: bool = True) -> tuple[Violation, ...]:
    """Every broken rule, errors and warnings. A repair listed removes its violation, without a new one if any can;
    proving that takes most of the time, so that who asks about many plans may go without ``repairs``."""
    found = [(rule, violation) for rule in RULES if (violation := rule(draft)) is not None]
    if not repairs:
        return tuple(replace(violation, repairs=()) for _, violation in found)
    broken = frozenset(violation.rule for _, violation in found if violation.severity == "error")
    return tuple(replace(violation, repairs=_proven(draft, rule, violation, broken)) for rule, violation in found)


def _proven(draft: Draft, rule: Rule, violation: Violation, broken: frozenset[str]) -> tuple[Repair, ...]:
    """The repairs that work, those without side effects first choice."""
    amended = [(repair, amend(draft, repair.changes)) for repair in violation.repairs]
    working = [(repair, after) for repair, after in amended if rule(after) is None]
    clean = [repair for repair, after in working if not _errors(after) - broken]
    return tuple(clean or [repair for repair, _ in working])


def _errors(draft: Draft) -> frozenset[str]:
    found = (rule(draft) for rule in RULES)
    return frozenset(violation.rule for violation in found if violation is not None and violation.severity == "error")
