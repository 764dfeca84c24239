"""What a plan gives up to fit, from least to most: where memory refuses it, the next rung is tried, at no cost."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import inf
from typing import Any

from windtunnel.projection.choices import (
    ACTIVATION_OFFLOAD,
    CP_COMM,
    DISPATCHER,
    EP_COMM,
    GRAD_REDUCE,
    OPTIMIZER_OFFLOAD,
    P2P,
    PARAM_GATHER,
    RECOMPUTE,
    SHARDING,
    TP_COMM,
    Changes,
)
from windtunnel.search.moves import PP, Moves, spread
from windtunnel.search.proposers.base import Ground, Stepwise
from windtunnel.search.space import SCHEDULE, VIRTUAL_STAGES
from windtunnel.search.trial import FREE, Proposal, Trial

Move = tuple[Changes, str]
"""A plan and why it is worth a trial."""
Try = Generator[Sequence[Proposal], Sequence[Trial], list[Trial]]

BLOCKS = 6
"""Numbers of whole layers per chunk that stand for all of them."""
FORWARD = 1 / 3
"""Share of a step without recomputation that is forward: a backward is two."""
HOST = 0.04
"""Guess of what a move to the host costs. Like all prices here it decides what is tried first, nothing else."""


def weight(value: Mapping[str, Any], chunk_layers: float = 32) -> float:
    """Guess of the share of a step that a recompute section executes again, for chunks of so many layers."""
    policy, size = str(value.get("policy")), value.get("num_layers")
    if policy == "block":
        count = chunk_layers if size is None else float(size)
        return FORWARD * min(1.0, count / chunk_layers)
    if policy == "modules":
        return FORWARD * len(value.get("modules", ())) / 10
    return {"none": 0.0, "selective": FORWARD / 10, "per_op": FORWARD / 4}.get(policy, FORWARD)


def ladder(moves: Moves) -> tuple[Changes, ...]:
    """Recomputation, and state and activations moved to the host, cheapest first; whole layers thinned."""
    recomputes = sorted((v for v in moves.axis(RECOMPUTE) if isinstance(v, Mapping)), key=weight)
    blocks = [value for value in recomputes if value.get("policy") == "block"]
    thinned = [value for value in recomputes if value not in blocks] + list(spread(blocks, BLOCKS))
    axes = {
        RECOMPUTE: [dict(value) for value in sorted(thinned, key=weight)],
        OPTIMIZER_OFFLOAD: list(moves.axis(OPTIMIZER_OFFLOAD)),
        ACTIVATION_OFFLOAD: sorted(moves.axis(ACTIVATION_OFFLOAD)),
    }
    named = {path: values for path, values in axes.items() if values}
    rungs = (dict(zip(named, values, strict=True)) for values in product(*named.values()))
    return tuple(sorted(rungs, key=price))


def price(rung: Mapping[str, Any], chunk_layers: float = 32) -> float:
    """What a rung gives up, as a guess of the share of a step."""
    on_host = (rung.get(OPTIMIZER_OFFLOAD, "none") != "none") + 2 * float(rung.get(ACTIVATION_OFFLOAD, 0.0))
    return weight(rung.get(RECOMPUTE, {"policy": "none"}), chunk_layers) + HOST * float(on_host)


OVERLAPS = (GRAD_REDUCE, PARAM_GATHER, TP_COMM, CP_COMM, EP_COMM, P2P)
"""They hide what would be waited for: on, until a trial says otherwise. So is a sharded optimizer state, which sends
no more than the all-reduce it replaces, and a dispatcher that sends each token to a node once."""


class Climbing(Stepwise):
    """A stepwise proposer whose plans give up as little as memory allows."""

    most_calls = inf
    """Plans tried by the oracle after which it proposes nothing new."""

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground)
        plain = Moves(ground.job, ground.space)
        sharded = (
            [(SHARDING, "zero1")] if plain.value({}, SHARDING) == "ddp" and "zero1" in plain.axis(SHARDING) else []
        )
        overlaps = [(path, True) for path in OVERLAPS if True in plain.axis(path)]
        fused = [(DISPATCHER, "deepep")] if "deepep" in plain.axis(DISPATCHER) else []
        self.moves = replace(plain, wishes=(*sharded, *overlaps, *fused))
        self.rungs = ladder(self.moves)
        self.calls = 0

    @property
    def at(self) -> Changes:
        """The best plan so far, the baseline before there is one."""
        return {} if self.best is None else self.best.changes

    def rungs_of(self, changes: Changes) -> Sequence[Changes]:
        """The rungs that mean something for a plan, cheapest first: pipelines keep their activations, and more layers
        than a chunk has are all of them."""
        pp, chunks = (int(self.moves.value(changes, path)) for path in (PP, VIRTUAL_STAGES))
        layers = self.ground.job.model.num_layers / (pp * chunks)
        able = [
            rung
            for rung in self.rungs
            if not (pp > 1 and rung.get(ACTIVATION_OFFLOAD))
            and rung.get(RECOMPUTE, {}).get("num_layers", 0) < max(layers, 1.5)
        ]
        return sorted(able, key=lambda rung: price(rung, layers)) or [{}]

    def chunks(self, pp: int) -> Changes:
        """As many chunks per stage as divide the layers: they shrink the bubble, and their hops are overlapped."""
        layers = self.ground.job.model.num_layers
        deep = [n for n in self.moves.axis(VIRTUAL_STAGES) if layers % (pp * n) == 0]
        if pp == 1 or not deep:
            return {}
        changes = self.moves.settled({**self.at, PP: pp}, {VIRTUAL_STAGES: max(deep)})
        return {} if changes is None else {p: changes[p] for p in (VIRTUAL_STAGES, SCHEDULE) if p in changes}

    def tried(self, points: Sequence[Move]) -> Try:
        """Try plans as they are."""
        if not points or self.calls >= self.most_calls:
            return []
        answers = yield [Proposal(changes, reason) for changes, reason in points]
        self.calls += sum(answer.outcome.status not in FREE for answer in answers)
        return list(answers)

    def fitted(self, points: Sequence[Move], *, keep: Sequence[str] = ()) -> Try:
        """Try plans on the lowest rung, and each that is refused on the next one, until it fits.

        What the rungs say of the paths ``keep`` is left as the plan has it.
        """
        found: list[Trial] = []
        left = [(changes, reason, self._levels(changes, keep)) for changes, reason in points]
        while left and self.calls < self.most_calls:
            answers = yield [Proposal({**changes, **levels[0]}, reason) for changes, reason, levels in left]
            self.calls += sum(answer.outcome.status not in FREE for answer in answers)
            found += answers
            left = [
                (changes, reason, levels[1:])
                for (changes, reason, levels), answer in zip(left, answers, strict=True)
                if answer.outcome.status in CLIMBED and levels[1:]
            ]
        return found

    def _levels(self, changes: Changes, keep: Sequence[str]) -> list[Changes]:
        """The rungs for a plan, the kept paths out of them; each once."""
        found: list[Changes] = []
        for rung in self.rungs_of(changes):
            level = {path: value for path, value in rung.items() if path not in keep}
            if level not in found:
                found.append(level)
        return found


CLIMBED = frozenset({"infeasible", "oom", "illegal"})
"""Refusals that another rung may lift: some frameworks offload under some degrees only."""
