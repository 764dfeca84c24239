"""Zero bubble under a memory cap: a greedy list scheduler with switches, the best of which is kept (Sea AI Lab)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import count, product, takewhile

from windtunnel.schedule.action import Action, Kind, Rows
from windtunnel.schedule.base import Request, Schedule, looped

EQUAL = (1.0, 1.0, 1.0, 0.0)
"""Costs of F, B, W and a hop where none are given."""

SMALL = 1024
"""Stages × micro-batches up to which smaller caps are tried too: beyond, that would take seconds."""


@dataclass(frozen=True, slots=True)
class Switches:
    """The greedy choices that are tried both ways."""

    overrun_first_backward: bool
    """Warm-up forwards may end after the first backward could have started."""
    prioritise_backward: bool
    """A stage two forwards ahead of the next skips one that would delay a backward."""
    weights_in_small_gaps: bool
    """A weight gradient fills even a gap that would not become the largest bubble."""


@dataclass(slots=True)
class _Stage:
    row: list[Action] = field(default_factory=list)
    forward_ends: list[float] = field(default_factory=list)
    backward_ends: list[float] = field(default_factory=list)
    weights: int = 0
    clock: float = 0.0
    alive: int = 0
    bubble: float = 0.0

    @property
    def forwards(self) -> int:
        return len(self.forward_ends)

    @property
    def owes_weights(self) -> bool:
        return self.weights < len(self.backward_ends)

    def put(self, kind: Kind, microbatch: int, cost: float, arrival: float = 0.0) -> float:
        """Run the action once its input has arrived; returns its end."""
        wait = max(arrival - self.clock, 0.0)
        if self.row:
            self.bubble += wait
        self.clock += wait + cost
        self.row.append(Action(kind, microbatch, 0))
        return self.clock


@dataclass(slots=True)
class _Pipe:
    num_microbatches: int
    cap: int
    forward: float
    backward: float
    weight: float
    hop: float
    switches: Switches
    stages: list[_Stage]

    @property
    def last(self) -> int:
        return len(self.stages) - 1

    @property
    def span(self) -> float:
        """Time from the start of the first forward to the end, on the stage where that is longest."""
        return max(stage.clock - stage.forward_ends[0] + self.forward for stage in self.stages)

    def run(self) -> None:
        self._first_microbatch()
        for microbatch in range(1, self.num_microbatches):
            self._forwards()
            self._backwards(microbatch)
        for stage in self.stages:
            self._flush(stage)

    def _first_microbatch(self) -> None:
        for index in range(len(self.stages)):
            self._put_forward(index)
        for index, extra in enumerate(self._warmup()):
            for _ in range(extra):
                self._put_forward(index)
        for index in reversed(range(len(self.stages))):
            self._put_backward(index)

    def _warmup(self) -> list[int]:
        """Further forwards before the first backward, per stage; fewer on every later stage while there are any."""
        extras = [0] * len(self.stages)
        end = self.stages[-1].clock + self.backward
        for index in reversed(range(self.last)):
            stage, arrival = self.stages[index], end + self.hop
            clock = stage.clock
            while self._has_room(stage, extras[index]) and self._warms(clock, arrival):
                clock += self.forward
                extras[index] += 1
            end = max(clock, arrival) + self.backward
        for index in range(1, len(extras)):
            extras[index] = self._fewer(index, extras[index], extras[index - 1])
        return extras

    def _has_room(self, stage: _Stage, extra: int) -> bool:
        return stage.forwards + extra < self.num_microbatches and stage.alive + extra < self.cap

    def _warms(self, clock: float, arrival: float) -> bool:
        """Whether one more forward fits, or at least starts, before the first backward arrives."""
        return clock < arrival if self.switches.overrun_first_backward else clock + self.forward <= arrival

    def _fewer(self, index: int, extra: int, before: int) -> int:
        """``extra`` cut below that of the stage before, unless it takes in all micro-batches anyway."""
        while extra > 0 and extra >= before and self.stages[index].forwards + extra < self.num_microbatches:
            extra -= 1
        return extra

    def _forwards(self) -> None:
        """One more forward on the first stages that want it; a stage takes none that the next refuses."""
        wanted = [self._wants_forward(index) for index in range(len(self.stages))]
        for index in reversed(range(self.last)):
            wanted[index] = wanted[index] and wanted[index + 1]
        for index, stage in enumerate(self.stages):
            if not wanted[index]:
                continue
            while stage.alive >= self.cap:
                self._put_weight(stage)
            if index:
                self._fill_gap(stage, self.stages[index - 1].forward_ends[stage.forwards] + self.hop)
            self._put_forward(index)

    def _wants_forward(self, index: int) -> bool:
        stage = self.stages[index]
        if stage.forwards >= self.num_microbatches:
            return False
        if not self.switches.prioritise_backward or index == self.last:
            return True
        following = self.stages[index + 1]
        if stage.forwards < following.forwards + 2:
            return True
        backward_arrival = following.clock + self.forward + self.backward + self.hop
        if stage.clock >= backward_arrival:
            return False
        freed = max(stage.alive + 1 - self.cap, 0)
        if stage.clock + self.forward + freed * self.weight <= backward_arrival:
            return True
        return backward_arrival - stage.clock > self._largest_bubble() - stage.bubble

    def _backwards(self, microbatch: int) -> None:
        for index in reversed(range(len(self.stages))):
            stage = self.stages[index]
            if index < self.last:
                self._fill_gap(stage, self.stages[index + 1].backward_ends[microbatch] + self.hop)
            if index == 0 and stage.forwards == self.num_microbatches:
                self._flush(stage)
            self._put_backward(index)

    def _fill_gap(self, stage: _Stage, arrival: float) -> None:
        """Weight gradients while they end before ``arrival``, and one more where the gap left would hurt."""
        while stage.owes_weights and stage.clock + self.weight <= arrival:
            self._put_weight(stage)
        gap = arrival - stage.clock
        if not stage.owes_weights or gap <= 0:
            return
        if gap > self._largest_bubble() - stage.bubble or self.switches.weights_in_small_gaps:
            self._put_weight(stage)

    def _largest_bubble(self) -> float:
        return max(stage.bubble for stage in self.stages)

    def _put_forward(self, index: int) -> None:
        stage = self.stages[index]
        arrival = self.stages[index - 1].forward_ends[stage.forwards] + self.hop if index else 0.0
        stage.forward_ends.append(stage.put("F", stage.forwards, self.forward, arrival))
        stage.alive += 1

    def _put_backward(self, index: int) -> None:
        stage = self.stages[index]
        microbatch = len(stage.backward_ends)
        arrival = self.stages[index + 1].backward_ends[microbatch] + self.hop if index < self.last else 0.0
        stage.backward_ends.append(stage.put("B", microbatch, self.backward, arrival))

    def _put_weight(self, stage: _Stage) -> None:
        stage.put("W", stage.weights, self.weight)
        stage.weights += 1
        stage.alive -= 1

    def _flush(self, stage: _Stage) -> None:
        while stage.owes_weights:
            self._put_weight(stage)


def rows(request: Request) -> Rows:
    """The shortest of the greedy orders under the cap and under smaller ones: more memory is never slower.

    The greedy may lose by using its room, while the order of a smaller cap is legal under a larger one. Pipes that are
    not ``SMALL`` get the greedy order of their cap. Without a cap up to m micro-batches are alive on a rank. The
    largest cap wins a tie.
    """
    best: tuple[float, Rows] | None = None
    for cap in _caps(request):
        if best is not None and best[0] <= _least(request, cap):
            continue
        found = _shortest(replace(request, memory_cap=cap))
        if best is None or found[0] < best[0]:
            best = found
    return () if best is None else best[1]


def _caps(request: Request) -> list[int]:
    """Caps worth trying, largest first: m, doublings of 2p, and every one up to 2p. A larger cap adds to the list."""
    p, m = request.num_stages, request.num_microbatches
    cap = m if request.memory_cap is None else request.memory_cap
    if p * m > SMALL:
        return [min(cap, m)]
    doublings = takewhile(lambda size: size <= cap, (2 * p << k for k in count(1)))
    tried = {m, *range(1, 2 * p + 1), *doublings}
    return sorted((size for size in tried if size <= min(cap, m)), reverse=True)


def _least(request: Request, cap: int) -> float:
    """No span is shorter: work of a stage, nor lives on the first stage (down the pipe and back), ``cap`` at once."""
    p, m = request.num_stages, request.num_microbatches
    forward, backward, weight, hop = request.costs or EQUAL
    life = p * (forward + backward) + weight + 2 * (p - 1) * hop
    return m * max(forward + backward + weight, life / cap)


@lru_cache(maxsize=64)
def _shortest(request: Request) -> tuple[float, Rows]:
    """(span, rows) of the best of the eight greedy orders under exactly this cap."""
    p, m = request.num_stages, request.num_microbatches
    pipes = [
        _Pipe(m, request.memory_cap or m, *(request.costs or EQUAL), Switches(*switches), [_Stage() for _ in range(p)])
        for switches in product((True, False), repeat=3)
    ]
    for pipe in pipes:
        pipe.run()
    best = min(pipes, key=lambda pipe: pipe.span)
    return best.span, tuple(tuple(stage.row) for stage in best.stages)


def obstacle(request: Request) -> str | None:
    cap = request.memory_cap
    return f"needs a memory cap of at least one micro-batch, not {cap}" if cap is not None and cap < 1 else None


ZB_HEURISTIC = Schedule(
    name="zb_heuristic", rows=rows, placement=looped, obstacle=obstacle, uses=frozenset({"memory_cap", "costs"})
)
