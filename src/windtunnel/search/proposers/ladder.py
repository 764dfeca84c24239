"""What a plan gives up to fit, from least to most: where memory refuses it, the next rung is tried, at no cost."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import inf, isfinite
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
from windtunnel.search.classes import degrees
from windtunnel.search.corrected import Corrections, Features
from windtunnel.search.envelope import FORWARD, VALUES, Envelope, Value, recomputed, share
from windtunnel.search.moves import ETP, PP, SEQUENCE_PARALLEL, TP, WORLD, Moves, spread
from windtunnel.search.proposers.base import Ground, Stepwise
from windtunnel.search.rates import Rates
from windtunnel.search.space import SCHEDULE, VIRTUAL_STAGES
from windtunnel.search.trial import Proposal, Trial

Move = tuple[Changes, str]
"""A plan and why it is worth a trial."""
Try = Generator[Sequence[Proposal], Sequence[Trial], list[Trial]]

BLOCKS = 6
"""Numbers of whole layers per chunk that stand for all of them."""


def weight(value: Mapping[str, Any], rates: Rates, chunk_layers: float | None = None) -> float:
    """Guess of the share of a step that a recompute section executes again, for chunks of so many layers."""
    layers = rates.recompute.chunk_layers if chunk_layers is None else chunk_layers
    return FORWARD * recomputed(value, layers, rates)


def ladder(moves: Moves, rates: Rates) -> tuple[Changes, ...]:
    """Recomputation, and state and activations moved to the host, cheapest first; whole layers thinned."""

    def heavy(value: Mapping[str, Any]) -> float:
        return weight(value, rates)

    recomputes = sorted((v for v in moves.axis(RECOMPUTE) if isinstance(v, Mapping)), key=heavy)
    blocks = [value for value in recomputes if value.get("policy") == "block"]
    thinned = [value for value in recomputes if value not in blocks] + list(spread(blocks, BLOCKS))
    sharding = [value for value in rates.sharding if value in moves.axis(SHARDING)]
    axes: dict[str, list[Any]] = {
        SHARDING: sharding if len(sharding) > 1 else [],
        RECOMPUTE: [dict(value) for value in sorted(thinned, key=heavy)],
        OPTIMIZER_OFFLOAD: list(moves.axis(OPTIMIZER_OFFLOAD)),
        ACTIVATION_OFFLOAD: sorted(moves.axis(ACTIVATION_OFFLOAD), key=share),
    }
    named = {path: values for path, values in axes.items() if values}
    rungs = (dict(zip(named, values, strict=True)) for values in product(*named.values()))
    return tuple(sorted(rungs, key=lambda rung: price(rung, rates)))


def price(rung: Mapping[str, Any], rates: Rates, chunk_layers: float | None = None) -> float:
    """What a rung gives up, as a guess of the share of a step: it decides what is tried first, nothing else."""
    activations = rates.ladder.host_activations * share(rung.get(ACTIVATION_OFFLOAD, 0.0))
    on_host = (rung.get(OPTIMIZER_OFFLOAD, "none") != "none") + activations
    sharded = rates.sharding.get(str(rung.get(SHARDING)), 0.0)
    again = weight(rung.get(RECOMPUTE, {"policy": "none"}), rates, chunk_layers)
    return again + rates.ladder.host * float(on_host) + sharded


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
        self.rungs = ladder(self.moves, ground.rates)
        self.calls = 0
        self._rungs: dict[tuple[bool, float], Sequence[Changes]] = {}
        self.envelope = Envelope(ground.job, ground.rates)
        self.corrections = Corrections(ground.rates.belief)
        self.ran: set[tuple[Any, ...]] = set()
        """Degrees of which a plan was tried by the oracle."""
        self.leaders: dict[tuple[Any, ...], Trial] = {}
        """The best plan of each degrees."""
        self._paths = tuple(axis.path for axis in self.moves.axes)
        self.trading = frozenset(self._paths if not ground.by_time else (WORLD,))
        """Axes along which a slower step, or one that costs more accelerators, may be the better plan."""
        self._own = {path: self.moves.value({}, path) for path in (*VALUES, *self._paths)}

    def tell(self, trial: Trial, *, own: bool) -> None:
        """Whatever ran, whoever proposed it, corrects what is expected of others."""
        if trial.called and trial.outcome.step_time is not None:
            changes = trial.changes
            self.corrections.learn(self.features(changes), self.guess(changes), trial.outcome.step_time)
        if trial.called:
            grid = degrees(self.moves, trial.changes)
            self.ran.add(grid)
            if isfinite(trial.rank[0]) and (grid not in self.leaders or trial.rank < self.leaders[grid].rank):
                self.leaders[grid] = trial
        super().tell(trial, own=own)

    def weight(self, section: Mapping[str, Any]) -> float:
        """Guess of the share of a step that a recompute section executes again."""
        return weight(section, self.ground.rates)

    def guess(self, changes: Changes) -> float:
        """Seconds of a step on the back of an envelope."""
        return self.envelope.seconds(self._value_of(changes))

    def features(self, changes: Changes) -> Features:
        value = self._value_of(changes)
        alone = value(TP) == 1
        return self.corrections.features(
            [(path, None if alone and path in WITH_TP else _kind(path, value(path))) for path in self._paths]
        )

    def cost(self, changes: Changes) -> float:
        """The guess in accelerator-seconds: what plans of clusters of any size are compared by."""
        return self.guess(changes) * float(self._value_of(changes)(WORLD))

    def promise(self, changes: Changes) -> float:
        """The cost, corrected by what was tried, if what was seldom tried helps."""
        return self.cost(changes) * self.corrections.hope(self.features(changes))

    def reached(self, trial: Trial) -> float:
        """Accelerator-seconds of a step of a plan that ran."""
        return (trial.outcome.step_time or inf) * float(self._value_of(trial.changes)(WORLD))

    def hopeless(self, changes: Changes) -> bool:
        """Whether a plan is far too large, also where the guesses of its bytes are: it is not proposed."""
        if any(path.startswith("cluster.") and path != WORLD for path in self._paths):
            return False
        value = self._value_of(changes)
        needed = self.envelope.bytes_of_states(value) + self.envelope.bytes_surely_kept(value)
        return needed > self.ground.job.cluster.accelerator.hbm_capacity

    def _value_of(self, changes: Changes) -> Value:
        own = self._own
        return lambda path: changes[path] if path in changes else own[path]

    @property
    def baseline(self) -> Move:
        """The job as it is, but for what the space pins."""
        pinned = self.moves.pinned if self.moves.pinned.keys() - {ETP} else {}
        return dict(pinned), "the baseline, as far as the space has it" if pinned else "the baseline"

    @property
    def at(self) -> Changes:
        """The best plan so far, the baseline before there is one."""
        return {} if self.best is None else self.best.changes

    def rungs_of(self, changes: Changes) -> Sequence[Changes]:
        """The rungs that mean something for a plan, cheapest first: pipelines keep their activations, and more layers
        than a chunk has are all of them."""
        pp, chunks = (int(self.moves.value(changes, path)) for path in (PP, VIRTUAL_STAGES))
        layers = self.ground.job.model.num_layers / (pp * chunks)
        key = (pp > 1, layers)
        if key not in self._rungs:
            able = [
                rung
                for rung in self.rungs
                if not (pp > 1 and share(rung.get(ACTIVATION_OFFLOAD, 0.0)))
                and rung.get(RECOMPUTE, {}).get("num_layers", 0) < max(layers, 1.5)
            ]
            self._rungs[key] = sorted(able, key=lambda rung: price(rung, self.ground.rates, layers)) or [{}]
        return self._rungs[key]

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
        self.calls += sum(answer.called for answer in answers)
        return list(answers)

    def fitted(self, points: Sequence[Move], *, keep: Sequence[str] = ()) -> Try:
        """Try plans on the lowest rung, and each that is refused on the next one, until it fits.

        What the rungs say of the paths ``keep`` is left as the plan has it.
        """
        found: list[Trial] = []
        left = [(changes, reason, self._levels(changes, keep)) for changes, reason in points]
        while left and self.calls < self.most_calls:
            answers = yield [Proposal({**changes, **levels[0]}, reason) for changes, reason, levels in left]
            self.calls += sum(answer.called for answer in answers)
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


WITH_TP = (SEQUENCE_PARALLEL, TP_COMM)
"""What has no meaning on one rank."""


def _kind(path: str, value: Any) -> object:
    """A value as far as plans are alike: of recomputations the policy, of their numbers of layers none."""
    return value.get("policy") if path == RECOMPUTE and isinstance(value, Mapping) else value


def shown(value: Any) -> str:
    """A value in a reason."""
    if isinstance(value, Mapping):
        return " ".join(str(item) for item in value.values())
    return str(value)
