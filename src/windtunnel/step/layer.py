"""Seconds of one layer: its ops priced, its communication split into exposed and hidden, its recompute added."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from windtunnel.cost.source import CostSource
from windtunnel.ops.op import Attention, Collective, ExpertExchange, Gemm, GroupedGemm, Op, Phase, RingExchange
from windtunnel.step.contention import contention
from windtunnel.step.parts import Parts
from windtunnel.step.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCost:
    """Parts of forward, backward for inputs (recompute included) and backward for weights; hidden seconds by group."""

    forward: Parts
    backward_input: Parts
    backward_weight: Parts
    hidden: dict[str, float]

    @property
    def backward(self) -> float:
        return self.backward_input.total + self.backward_weight.total


def price_layer(source: CostSource, ops: tuple[Op, ...], recompute: frozenset[str], how: Settings) -> LayerCost:
    """Price every op of a layer once; re-executed forward ops are added to backward."""
    tally = _Tally(source, how)
    tally.add(op for op in ops)
    tally.again(ops, recompute)
    if how.overlap.ep_comm:
        tally.hide_exchanges()
    return LayerCost(
        forward=tally.parts("F"),
        backward_input=tally.parts("B"),
        backward_weight=tally.parts("W"),
        hidden=dict(tally.hidden),
    )


class _Tally:
    """Seconds by phase and part while the ops of one layer are walked."""

    def __init__(self, source: CostSource, how: Settings) -> None:
        self._source = source
        self._how = how
        self._seconds: dict[Phase, dict[str, float]] = {phase: defaultdict(float) for phase in ("F", "B", "W")}
        self.hidden: dict[str, float] = defaultdict(float)

    def parts(self, phase: Phase) -> Parts:
        return Parts(**self._seconds[phase])

    def add(self, ops: Iterable[Op]) -> None:
        walked = tuple(ops)
        for op in walked:
            self._book(op, op.phase, "compute", 1.0)
        for phase in ("F", "B"):
            self._rings([op for op in walked if op.phase == phase], phase)
        self._host_wait(walked)

    def again(self, ops: tuple[Op, ...], recompute: frozenset[str]) -> None:
        """Re-execute in backward what ``recompute`` names; per-op policies repeat shares of each kind of op."""
        step = self._how.constants.step
        if "per_op" in recompute:
            for op in ops:
                if op.phase != "F" or isinstance(op, Attention | RingExchange):
                    continue
                gemm = isinstance(op, Gemm | GroupedGemm)
                share = step.per_op_gemm if gemm else step.per_op_communication if isinstance(op, Collective) else 1.0
                self._book(op, "B", "recompute", share)
            return
        repeated = [op for op in ops if op.phase == "F" and ("full" in recompute or op.modules & recompute)]
        for op in repeated:
            self._book(op, "B", "recompute", 1.0)
        self._rings(repeated, "B")

    def _book(self, op: Op, phase: Phase, part: str, share: float) -> None:
        if isinstance(op, RingExchange):
            return
        cost = self._source.again(op) if part == "recompute" else self._source.cost(op)
        seconds = cost.seconds * share
        if isinstance(op, Collective):
            self._communicate(op.group, seconds, seconds - share * self._saved(op), phase)
        elif isinstance(op, ExpertExchange):
            self._seconds[phase]["ep"] += seconds
        else:
            self._seconds[phase][part] += seconds

    def _communicate(self, group: str, seconds: float, exposed: float, phase: Phase) -> None:
        self._seconds[phase][group] += exposed
        self.hidden[group] += seconds - exposed

    def _saved(self, op: Collective) -> float:
        """Seconds of a collective that a GEMM beside it hides, less what it slows that GEMM.

        A GEMM that does not wait for it hides up to its own length and is slowed by the bytes. One that does is cut
        into pieces, if the software does that: each but the first runs beside the next share of the traffic, and small
        products are less efficient.
        """
        beside = op.beside
        if beside is None or (op.pieces > 1 and not self._how.overlap.tp_comm):
            return 0.0
        seconds, alone = self._source.cost(op).seconds, self._source.cost(beside).seconds
        constants, shared = self._how.constants.collective, min(seconds, alone)
        if op.pieces == 1:
            moved = op.size * (2 if op.collective == "all_reduce" else 1) * (1 - 1 / self._how.tp)
            slows: float = contention(moved, seconds, alone, constants.slowdown, self._how.link)
            return max(0.0, shared - slows)
        piece = self._source.cost(replace(beside, m=beside.m / op.pieces)).seconds
        together = piece + max((op.pieces - 1) * piece, seconds) + constants.beside_gemm * shared
        return max(0.0, seconds + alone - together)

    def hide_exchanges(self) -> None:
        """Exchanges of a micro-batch run beside the compute of another in the same layer, on units taken from it."""
        window = sum(seconds[part] for seconds in self._seconds.values() for part in ("compute", "recompute"))
        exchanges = sum(seconds["ep"] for seconds in self._seconds.values())
        beside = min(exchanges, window)
        left = 1 - (1 - self._how.constants.expert.units_held) * beside / exchanges if exchanges > 0 else 1.0
        self.hidden["ep"] += (1 - left) * exchanges
        for seconds in self._seconds.values():
            seconds["ep"] *= left

    def _rings(self, ops: list[Op], phase: Phase) -> None:
        """A ring exposes what its hops outlast of the attention they run beside, and a fixed cost a hop."""
        rings = [op for op in ops if isinstance(op, RingExchange)]
        if not rings:
            return
        constants = self._how.constants.collective
        forward = rings[0].phase == "F"
        beside = sum(self._source.cost(op).seconds for op in ops if isinstance(op, Attention))
        for ring in rings:
            seconds = ring.hops * self._source.cost(ring).seconds
            cover = constants.ring_hidden * beside * ring.hops / (ring.hops + 1) if self._how.overlap.cp_comm else 0.0
            fixed = ring.hops * (constants.ring_step_forward if forward else constants.ring_step_backward)
            self._seconds[phase]["cp"] += max(0.0, seconds - cover) + fixed
            self.hidden["cp"] += min(seconds, cover)

    def _host_wait(self, ops: tuple[Op, ...]) -> None:
        """A dropless MoE layer reads its token counts back to the host unless the software avoids it."""
        moe = self._how.moe
        waits = any(isinstance(op, GroupedGemm) for op in ops) and moe.capacity_factor is None
        if waits and not moe.sync_free and not self._how.full_graph:
            self._seconds["F"]["host"] += self._how.constants.expert.host_wait
