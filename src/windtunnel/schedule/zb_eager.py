"""A list scheduler for caps below the stages of a pipe: every stage runs at once what is ready, in order of time."""

from __future__ import annotations

import heapq
from collections import deque

from windtunnel.schedule.base import Costs
from windtunnel.schedule.zb_greedy import BACKWARD, FORWARD, WEIGHT


class EagerPipe:
    """A backward before a forward before a weight gradient, a forward only where the cap leaves room.

    Micro-batches come in waves of the cap, each wave following the one before it down the pipe. It always ends: the
    oldest micro-batch alive never waits for room. ``codes`` are as those of ``Pipe``.
    """

    def __init__(self, num_stages: int, num_microbatches: int, cap: int, costs: Costs) -> None:
        self.num_microbatches, self.cap = num_microbatches, cap
        self.forward, self.backward, self.weight, self.hop = costs
        self.last = num_stages - 1
        self.free = [0.0] * num_stages
        self.started = [0.0] * num_stages
        self.bubble = [0.0] * num_stages
        self.alive = [0] * num_stages
        self.owed = [0] * num_stages
        """Weight gradients of a stage that may run."""
        self.forwards: list[deque[float]] = [deque() for _ in range(num_stages)]
        self.backwards: list[deque[float]] = [deque() for _ in range(num_stages)]
        """When the inputs that a stage has yet to take arrive."""
        self.codes = [bytearray() for _ in range(num_stages)]
        self.events: list[tuple[float, int]] = [(0.0, 0)]
        """Times at which a stage may start something."""

    @property
    def span(self) -> float:
        """Time from the start of the first forward to the end, on the stage where that is longest."""
        return max(end - start for end, start in zip(self.free, self.started, strict=True))

    def run(self, limit: float) -> bool:
        """Whether all is placed with no stage waiting more than ``limit`` seconds since its first action."""
        self.forwards[0].extend([0.0] * self.num_microbatches)
        while self.events:
            now, stage = heapq.heappop(self.events)
            if self.free[stage] <= now and self._start(stage, now) and self.bubble[stage] > limit:
                return False
        return True

    def _start(self, stage: int, now: float) -> bool:
        """Start what is ready on a free stage; False where nothing is."""
        forwards, backwards = self.forwards[stage], self.backwards[stage]
        if backwards and backwards[0] <= now:
            backwards.popleft()
            self.owed[stage] += 1
            end = self._put(stage, BACKWARD, now, self.backward)
            if stage:
                self._hand_on(self.backwards, stage - 1, end + self.hop)
        elif forwards and forwards[0] <= now and self.alive[stage] < self.cap:
            forwards.popleft()
            self.alive[stage] += 1
            end = self._put(stage, FORWARD, now, self.forward)
            if stage < self.last:
                self._hand_on(self.forwards, stage + 1, end + self.hop)
            else:
                self._hand_on(self.backwards, stage, end)
        elif self.owed[stage]:
            self.owed[stage] -= 1
            self.alive[stage] -= 1
            self._put(stage, WEIGHT, now, self.weight)
        else:
            return False
        return True

    def _put(self, stage: int, code: int, now: float, seconds: float) -> float:
        if self.codes[stage]:
            self.bubble[stage] += now - self.free[stage]
        else:
            self.started[stage] = now
        self.codes[stage].append(code)
        self.free[stage] = now + seconds
        heapq.heappush(self.events, (now + seconds, stage))
        return now + seconds

    def _hand_on(self, waiting: list[deque[float]], stage: int, arrival: float) -> None:
        waiting[stage].append(arrival)
        heapq.heappush(self.events, (arrival, stage))
