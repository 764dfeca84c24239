"""The greedy list scheduler of zero bubble under a memory cap (Sea AI Lab).

Micro-batch by micro-batch: a forward more where it is wanted, then the backward from the last stage to the first, and
weight gradients in the gaps. Once the pipe is back in a state it has been in, only later, the rounds between are
repeated: a long step costs no more to arrange than a short one. Bubbles are no part of that state, though decisions
weigh them: the rounds repeat as they are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import sub
from typing import NamedTuple

from windtunnel.schedule.base import Costs

FORWARD, BACKWARD, WEIGHT = range(3)

SAME = 1e-9
"""Relative to the time a round takes: what tells two moments apart; sums of seconds are not exact."""


@dataclass(frozen=True, slots=True)
class Switches:
    """The greedy choices that are tried both ways."""

    overrun_first_backward: bool
    """Warm-up forwards may end after the first backward could have started."""
    prioritise_backward: bool
    """A stage two forwards ahead of the next skips one that would delay a backward."""
    weights_in_small_gaps: bool
    """A weight gradient fills even a gap that would not become the largest bubble."""


class _State(NamedTuple):
    """The pipe after a round."""

    microbatch: int
    clock: list[float]
    forwards: list[int]
    weights: list[int]
    arriving: list[list[float]]
    bubble: list[float]
    length: list[int]


class Pipe:
    """Stages that fill up: ``codes[stage]`` are the kinds of its actions, each kind in the order of micro-batches.

    Per stage: ``clock`` is when it is free, ``bubble`` how long it has waited since its first action, ``arriving`` when
    the forwards that the next stage has yet to run reach it.
    """

    def __init__(self, num_stages: int, num_microbatches: int, cap: int, costs: Costs, switches: Switches) -> None:
        self.num_microbatches, self.cap, self.switches = num_microbatches, cap, switches
        self.forward, self.backward, self.weight, self.hop = costs
        self.last = num_stages - 1
        self.clock = [0.0] * num_stages
        self.bubble = [0.0] * num_stages
        self.forwards = [0] * num_stages
        self.weights = [0] * num_stages
        self.arriving: list[deque[float]] = [deque() for _ in range(num_stages)]
        self.codes = [bytearray() for _ in range(num_stages)]
        self.largest = 0.0
        """The largest bubble of a stage."""
        self.backwards = 0
        """Backwards of every stage, between rounds."""

    @property
    def span(self) -> float:
        """Time from the start of the first forward to the end, on the stage where that is longest."""
        first = [stage * (self.forward + self.hop) for stage in range(self.last + 1)]
        spans: Iterator[float] = map(sub, self.clock, first)
        return max(spans)

    def run(self, limit: float) -> bool:
        """Whether all is placed with no bubble above ``limit`` seconds: the longest stage takes its work and that."""
        self._first_microbatch()
        saved: _State | None = None
        due = 2
        while self.backwards < self.num_microbatches:
            self._forwards()
            self._backwards()
            if self.largest > limit:
                return False
            if saved is not None and self._recurs(saved):
                self._repeat(saved)
                saved, due = None, self.num_microbatches
            elif self.backwards >= due:
                saved, due = self._state(), self.backwards + 1 + self.backwards // 4
        for stage in range(self.last + 1):
            self._flush(stage)
        return True

    def _first_microbatch(self) -> None:
        for stage in range(self.last + 1):
            self._put_forward(stage)
        for stage, extra in enumerate(self._warmup()):
            for _ in range(extra):
                self._put_forward(stage)
        self._backwards()

    def _warmup(self) -> list[int]:
        """Further forwards before the first backward, per stage; fewer on every later stage while there are any."""
        most = min(self.num_microbatches, self.cap) - 1
        extras = [0] * (self.last + 1)
        end = self.clock[self.last] + self.backward
        for stage in reversed(range(self.last)):
            clock, arrival = self.clock[stage], end + self.hop
            while extras[stage] < most and self._warms(clock, arrival):
                clock += self.forward
                extras[stage] += 1
            end = max(clock, arrival) + self.backward
        for stage in range(1, self.last + 1):
            if extras[stage] < self.num_microbatches - 1:
                extras[stage] = min(extras[stage], max(extras[stage - 1] - 1, 0))
        return extras

    def _warms(self, clock: float, arrival: float) -> bool:
        """Whether one more forward fits, or at least starts, before the first backward arrives."""
        return clock < arrival if self.switches.overrun_first_backward else clock + self.forward <= arrival

    def _forwards(self) -> None:
        """One more forward on the last stages that want it: a stage takes none that the next refuses."""
        if self.forwards[self.last] >= self.num_microbatches:
            return
        first = self.last
        while first and self._wants_forward(first - 1):
            first -= 1
        for stage in range(first, self.last + 1):
            while self.forwards[stage] - self.weights[stage] >= self.cap:
                self._put_weight(stage)
            if stage and self.arriving[stage - 1][0] > self.clock[stage]:
                self._fill_gap(stage, self.arriving[stage - 1][0])
            self._put_forward(stage)

    def _wants_forward(self, stage: int) -> bool:
        placed = self.forwards[stage]
        if placed >= self.num_microbatches:
            return False
        if not self.switches.prioritise_backward or placed < self.forwards[stage + 1] + 2:
            return True
        clock = self.clock[stage]
        arrival = self.clock[stage + 1] + self.forward + self.backward + self.hop
        if clock >= arrival:
            return False
        freed = max(placed - self.weights[stage] + 1 - self.cap, 0)
        if clock + self.forward + freed * self.weight <= arrival:
            return True
        return arrival - clock > self.largest - self.bubble[stage]

    def _backwards(self) -> None:
        """The backward of one micro-batch, up the pipe."""
        arrival = 0.0
        for stage in range(self.last, -1, -1):
            if arrival > self.clock[stage]:
                self._fill_gap(stage, arrival)
            if stage == 0 and self.forwards[0] == self.num_microbatches:
                self._flush(0)
            if arrival > self.clock[stage]:
                self._wait(stage, arrival)
            self.clock[stage] += self.backward
            self.codes[stage].append(BACKWARD)
            arrival = self.clock[stage] + self.hop
        self.backwards += 1

    def _fill_gap(self, stage: int, arrival: float) -> None:
        """Weight gradients while they end before ``arrival``, and one more where the gap left would hurt.

        In a round of backwards the stage's own is not placed yet.
        """
        while self.weights[stage] < self.backwards and self.clock[stage] + self.weight <= arrival:
            self._put_weight(stage)
        gap = arrival - self.clock[stage]
        if self.weights[stage] >= self.backwards or gap <= 0:
            return
        if gap > self.largest - self.bubble[stage] or self.switches.weights_in_small_gaps:
            self._put_weight(stage)

    def _put_forward(self, stage: int) -> None:
        if stage:
            arrival = self.arriving[stage - 1].popleft()
            if arrival > self.clock[stage]:
                self._wait(stage, arrival)
        self.clock[stage] += self.forward
        self.forwards[stage] += 1
        self.codes[stage].append(FORWARD)
        if stage < self.last:
            self.arriving[stage].append(self.clock[stage] + self.hop)

    def _put_weight(self, stage: int) -> None:
        self.clock[stage] += self.weight
        self.weights[stage] += 1
        self.codes[stage].append(WEIGHT)

    def _flush(self, stage: int) -> None:
        while self.weights[stage] < self.backwards:
            self._put_weight(stage)

    def _wait(self, stage: int, arrival: float) -> None:
        if self.forwards[stage]:
            self.bubble[stage] += arrival - self.clock[stage]
            self.largest = max(self.largest, self.bubble[stage])
        self.clock[stage] = arrival

    def _state(self) -> _State:
        return _State(
            self.backwards,
            self.clock[:],
            self.forwards[:],
            self.weights[:],
            [list(times) for times in self.arriving],
            self.bubble[:],
            [len(row) for row in self.codes],
        )

    def _recurs(self, saved: _State) -> bool:
        """Whether every stage is where it was, the same number of micro-batches and the same time later."""
        later, rounds = self.clock[0] - saved.clock[0], self.backwards - saved.microbatch
        near = SAME * later
        return (
            _all_ahead(self.clock, saved.clock, later, near)
            and _all_ahead(self.forwards, saved.forwards, rounds)
            and _all_ahead(self.weights, saved.weights, rounds)
            and all(
                len(now) == len(then) and _all_ahead(now, then, later, near)
                for now, then in zip(self.arriving, saved.arriving, strict=True)
            )
        )

    def _repeat(self, saved: _State) -> None:
        """The rounds since ``saved`` again, as often as micro-batches are left for all their forwards."""
        rounds, later = self.backwards - saved.microbatch, self.clock[0] - saved.clock[0]
        times = max((self.num_microbatches - 1 - self.forwards[0]) // rounds, 0)
        for stage in range(self.last + 1):
            self.clock[stage] += times * later
            self.forwards[stage] += times * rounds
            self.weights[stage] += times * rounds
            self.arriving[stage] = deque(arrival + times * later for arrival in self.arriving[stage])
            self.bubble[stage] += times * (self.bubble[stage] - saved.bubble[stage])
            self.codes[stage] += self.codes[stage][saved.length[stage] :] * times
        self.backwards += times * rounds
        self.largest = max(self.bubble)


def _all_ahead(now: Sequence[float], then: Sequence[float], by: float, near: float = 0.0) -> bool:
    return all(-near <= distance - by <= near for distance in map(sub, now, then))
