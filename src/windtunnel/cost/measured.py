"""The measured cost source: a profile where it has an answer, the simulated source where it has none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from windtunnel.cost.collectives.placement import Placement
from windtunnel.cost.profile import Estimate, Key, Pass, Profile
from windtunnel.cost.profile_keys import (
    LAYER_OVER_OPS,
    calibration_key,
    collective_key,
    gathered_by_unit,
    op_key,
    optimizer_key,
    unit_key,
)
from windtunnel.cost.simulated import SimulatedSource, simulated_source
from windtunnel.cost.source import Evidence, OpCost
from windtunnel.job.job import Job
from windtunnel.ops.chunk import Unit, lower_unit
from windtunnel.ops.op import Collective, Op, Phase
from windtunnel.ops.sizes import Sizes, sizes

SPLIT_SCHEDULES = frozenset({"zb_h1", "zb_heuristic", "interleaved_zb", "zbv", "v_half", "v_min", "dualpipe_v"})
"""Schedules that run the weight gradients of a chunk apart from its input gradients."""


@dataclass(frozen=True, slots=True)
class Whole:
    """Seconds of a whole unit over the sum of its ops, by phase, and where they come from. ``again``: of what its
    backward executes again over those ops; None: as forward."""

    forward: float = 1.0
    grad_input: float = 1.0
    grad_weight: float = 1.0
    evidence: Evidence | None = None
    again: float | None = None

    def of(self, phase: Phase) -> float:
        return {"F": self.forward, "B": self.grad_input, "W": self.grad_weight}[phase]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSource:
    """Prices ops from ``profile``; ``split``: input and weight gradients run apart, as they were measured apart.

    ``beside`` ranks of the host are busy at the same time, on average; ``sharded``: units gather their parameters.
    Inside a unit that was measured whole (``whole``), its ops share the unit's seconds in proportion to their own.
    ``lean`` takes every measurement at that many of its relative errors above the median.
    """

    profile: Profile
    fallback: SimulatedSource
    split: bool
    beside: float = 0.0
    sharded: bool = False
    lean: float = 0.0
    whole: Whole = Whole()

    def cost(self, op: Op) -> OpCost:
        """Seconds of ``op`` alone on the device. Raises TypeError for an op kind nobody can price."""
        if isinstance(op, Collective):
            found = self._collective(op.collective, op.size, self.fallback.placements[op.group])
            if found is not None:
                return OpCost(found.seconds, "network", found.evidence)
            evidence = self.traffic_evidence(op.collective, op.size, self.fallback.placements[op.group])
            return replace(self.fallback.cost(op), provenance=evidence)
        own = self._alone(op)
        if own.bound == "network":
            return own
        return replace(
            own, seconds=own.seconds * self.whole.of(op.phase), provenance=self.whole.evidence or own.provenance
        )

    def again(self, op: Op) -> OpCost:
        """As ``cost``; in a unit whose backward was measured with and without executing again, a share of that."""
        if self.whole.again is None or isinstance(op, Collective):
            return self.cost(op)
        own = self._alone(op)
        if own.bound == "network":
            return own
        return replace(own, seconds=own.seconds * self.whole.again, provenance=self.whole.evidence or own.provenance)

    def _alone(self, op: Op) -> OpCost:
        wanted = op_key(op)
        found = self.known(wanted) if wanted is not None else None
        simulated = self.fallback.cost(op)
        return simulated if found is None else OpCost(found.seconds, simulated.bound, found.evidence)

    def collective(self, kind: str, size: float, placement: Placement) -> float:
        """Seconds of a collective of ``size`` bytes (full, gathered size) over a placed group."""
        if placement.ranks <= 1 or size <= 0:
            return 0.0
        found = self._collective(kind, size, placement)
        return self.fallback.collective(kind, size, placement) if found is None else found.seconds

    def _collective(self, kind: str, size: float, placement: Placement) -> Estimate | None:
        return self.known(collective_key(kind, placement.ranks, placement.inside, size))

    def traffic_evidence(self, kind: str, size: float, placement: Placement) -> Evidence:
        """Traffic of a kind that was measured at all runs on a curve fitted to it at least."""
        found = self._collective(kind, size, _pair(placement) if kind == "send_recv" else placement)
        if found is not None:
            return found.evidence
        return "anchored" if self._knows(f"collective/{kind}") else "simulated"

    def transfer(self, size: float, placement: Placement) -> float:
        """Seconds to send ``size`` bytes to a neighbour of a placed group."""
        found = self._collective("send_recv", size, _pair(placement))
        return self.fallback.transfer(size, placement) if found is None else found.seconds

    def optimizer(self, job: Job, parameters: float) -> float | None:
        """Seconds of a step over ``parameters`` local parameters, None where nobody measured it."""
        found = self.known(optimizer_key(job, parameters))
        return None if found is None else found.seconds

    def optimizer_evidence(self, job: Job, parameters: float) -> Evidence:
        """Measured at this size, or between measured sizes."""
        found = self.known(optimizer_key(job, parameters))
        return "simulated" if found is None else found.evidence

    def known(self, wanted: Key) -> Estimate | None:
        """What the profile says of a key, leaning as the source does."""
        found = self.profile.estimate(wanted)
        if found is None or self.lean == 0.0:
            return found
        return replace(found, seconds=found.seconds * max(1 + self.lean * found.error, LEAST))

    def _knows(self, prefix: str) -> bool:
        return any(entry.key.op.startswith(prefix) for entry in self.profile.entries)

    def within(self, job: Job, unit: Unit) -> MeasuredSource:
        """The source inside one unit of ``job``: what the profile knows of the unit as a whole decides its sum."""
        return replace(self, whole=_whole(replace(self, whole=Whole()), job, unit))


@lru_cache(maxsize=4096)
def _whole(source: MeasuredSource, job: Job, unit: Unit) -> Whole:
    """Ratios of measured unit to ops; without a measurement of this unit, the machine's own ratio of layer to ops."""
    sized, ops = sizes(job, unit), lower_unit(job, unit)
    summed = {
        phase: sum(cost.seconds for op in ops if op.phase == phase and (cost := source._alone(op)).bound != "network")
        for phase in ("F", "B", "W")
    }
    # Token ids want no gradient: the embedding's backward is one piece under every schedule.
    split = source.split and unit.kind != "embedding"
    phases: tuple[Pass, ...] = ("forward", "grad_input", "grad_weight") if split else ("forward", "backward")
    found = _unit(source, sized, phases)
    if all(estimate is not None for estimate in found.values()):
        exact = all(estimate is not None and estimate.evidence == "measured" for estimate in found.values())
        ratios = _ratios(found, summed, "measured" if exact else "interpolated")
        return replace(ratios, again=_again(source, sized, unit, ops))
    if unit.layer is None:
        return Whole()
    general = (source.profile.find(calibration_key(name)) for name in LAYER_OVER_OPS)
    forward, back = (entry.seconds if entry else 1.0 for entry in general)
    return Whole(forward, back, back)


def _again(source: MeasuredSource, sized: Sizes, unit: Unit, ops: Sequence[Op]) -> float | None:
    """What a backward that executes ops again takes longer than one that does not, over those ops."""
    if not unit.recompute or "per_op" in unit.recompute:
        return None
    keys = (unit_key(sized, "backward", source.beside, again=again) for again in (unit.recompute, frozenset[str]()))
    longer, plain = (source.known(wanted) for wanted in keys)
    repeated = [op for op in ops if op.phase == "F" and ("full" in unit.recompute or op.modules & unit.recompute)]
    seconds = sum(cost.seconds for op in repeated if (cost := source._alone(op)).bound != "network")
    if longer is None or plain is None or seconds == 0:
        return None
    return max(0.0, longer.seconds - plain.seconds) / seconds


def _unit(source: MeasuredSource, sized: Sizes, phases: tuple[Pass, ...]) -> dict[Pass, Estimate | None]:
    """A sharded unit as such, where that was measured; otherwise as a whole one."""
    found: dict[Pass, Estimate | None] = {}
    for sharded in (True, False) if source.sharded else (False,):
        found = {phase: source.known(unit_key(sized, phase, source.beside, sharded=sharded)) for phase in phases}
        if all(estimate is not None for estimate in found.values()):
            break
    return found


def _ratios(found: dict[Pass, Estimate | None], summed: dict[str, float], evidence: Evidence) -> Whole:
    """A phase without ops of its own (the input gradient of an embedding) takes nothing."""
    seconds = {phase: estimate.seconds for phase, estimate in found.items() if estimate is not None}
    if "backward" in seconds:
        both = seconds["backward"] / (summed["B"] + summed["W"])
        return Whole(seconds["forward"] / summed["F"], both, both, evidence)
    into, weight = seconds["grad_input"], seconds["grad_weight"]
    if summed["B"] == 0:
        return Whole(seconds["forward"] / summed["F"], 1.0, (into + weight) / summed["W"], evidence)
    return Whole(seconds["forward"] / summed["F"], into / summed["B"], weight / summed["W"], evidence)


def _pair(placement: Placement) -> Placement:
    """Two neighbours of a group."""
    return Placement(2, 1 if placement.crosses else 2)


LEAST = 0.01
"""Share of a median that is left of it however far a source leans."""


def measured_source(job: Job, profile: Profile, *, beside: float = 0.0, lean: float = 0.0) -> MeasuredSource:
    """The measured source of a job, simulated where the profile has no answer."""
    return MeasuredSource(
        profile=profile,
        fallback=simulated_source(job),
        split=job.plan.pipeline.schedule in SPLIT_SCHEDULES,
        beside=beside,
        sharded=gathered_by_unit(job),
        lean=lean,
    )
