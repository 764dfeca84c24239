"""A second simulator that shares nothing with the first: events in order of time, one queue a rank, no compiled order.

It knows the rules of a pipeline and an order's rows, and learns everything else by waiting.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from windtunnel.schedule.action import Order

Done = tuple[str, int, int]
"""F, B or W of a micro-batch on a global chunk."""


def simulate(
    order: Order, seconds: Mapping[str, Sequence[float]], hop: float
) -> tuple[dict[Done, tuple[float, float]], list[float]]:
    """Start and end of every part of every action, and the most micro-batches of a stage that each rank ever holds.

    ``seconds["F"][chunk]`` and so on are by global chunk. A pair starts when both can and hands on both at its end.
    """
    last = order.num_chunks - 1
    home: dict[Done, int] = {}
    arrivals: dict[tuple[int, Done], float] = {}
    spans: dict[Done, tuple[float, float]] = {}
    alive, most = [0] * order.num_stages, [0] * order.num_stages
    head, free = [0] * order.num_stages, [0.0] * order.num_stages
    for rank, (row, held) in enumerate(zip(order.actions, order.placement, strict=True)):
        home |= {(part, action.microbatch, held[action.chunk]): rank for action in row for part in action.kind}

    def group(rank: int) -> list[tuple[str, int, int]]:
        """The next action of a rank, with the one beside it."""
        at = head[rank]
        width = 2 if order.overlapped and at in set(order.overlapped[rank]) else 1
        return [(a.kind, a.microbatch, order.placement[rank][a.chunk]) for a in order.actions[rank][at : at + width]]

    def needs(kind: str, microbatch: int, chunk: int) -> list[Done]:
        if kind == "F":
            return [("F", microbatch, chunk - 1)] * (chunk > 0)
        if kind == "W":
            return [("B", microbatch, chunk)]
        return [("F", microbatch, chunk)] + [("B", microbatch, chunk + 1)] * (chunk < last)

    events: list[tuple[float, int, int, Done | None]] = []
    count = 0
    for rank in range(order.num_stages):
        heapq.heappush(events, (0.0, count := count + 1, rank, None))
    while events:
        now, _, rank, arrived = heapq.heappop(events)
        if arrived is not None:
            arrivals[rank, arrived] = now
        if head[rank] == len(order.actions[rank]) or free[rank] > now:
            continue
        actions = group(rank)
        if any((rank, wanted) not in arrivals for action in actions for wanted in needs(*action)):
            continue
        head[rank] += len(actions)
        clock, handed = now, []
        for kind, microbatch, chunk in actions:
            for part in kind:
                end = clock + seconds[part][chunk]
                spans[part, microbatch, chunk] = clock, end
                handed.append((part, microbatch, chunk))
                clock = end
        # forwards of the group first, releases when it is over
        alive[rank] += sum(part == "F" for part, _, _ in handed)
        most[rank] = max(most[rank], alive[rank])
        alive[rank] -= sum(part == "W" for part, _, _ in handed)
        free[rank] = clock
        for part, microbatch, chunk in handed:
            heapq.heappush(events, (clock, count := count + 1, rank, (part, microbatch, chunk)))
            target = {"F": chunk + 1, "B": chunk - 1}.get(part, -1)
            if 0 <= target <= last:
                other = home[part, microbatch, target]
                if other != rank:
                    heapq.heappush(events, (clock + hop, count := count + 1, other, (part, microbatch, chunk)))
        heapq.heappush(events, (clock, count := count + 1, rank, None))
    assert head == [len(row) for row in order.actions], "deadlock"
    return spans, [held / order.virtual_stages for held in most]
