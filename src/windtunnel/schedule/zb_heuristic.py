"""Zero bubble under a memory cap: the shortest of greedy orders, under the cap and under smaller ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, product, takewhile
from math import inf

from windtunnel.schedule.action import Action, Kind, Rows
from windtunnel.schedule.base import Costs, Request, Schedule, each, looped
from windtunnel.schedule.zb_eager import EagerPipe
from windtunnel.schedule.zb_greedy import Pipe, Switches

EQUAL = (1.0, 1.0, 1.0, 0.0)
"""Costs of F, B, W and a hop where none are given."""

NOISE = 1e-12
"""Relative; sums of seconds are not exact."""

KINDS: tuple[Kind, ...] = ("F", "B", "W")


def rows(request: Request) -> Rows:
    """The shortest of the greedy orders under the cap and under smaller ones: more memory is never slower.

    The greedy may lose by using its room, while the order of a smaller cap is legal under a larger one. Without a cap
    up to m micro-batches are alive on a rank. The largest cap wins a tie. Shortest is the longest stage, from its first
    forward on: m(F + B + W) and its bubble, so a pipe is given up once its bubble exceeds that of the best.
    """
    p, m = request.num_stages, request.num_microbatches
    costs = request.costs or EQUAL
    work = m * sum(costs[:3])
    best: tuple[float, list[bytearray]] = (inf, [])
    for cap in _caps(request):
        least = work + _least_bubble(p, m, cap, costs)
        for pipe in _pipes(p, m, cap, costs):
            if best[0] <= least * (1 + NOISE):
                break
            if pipe.run(best[0] * (1 + NOISE) - work) and pipe.span < best[0]:
                best = pipe.span, pipe.codes
    return tuple(_spelled(best[1], m))


def _pipes(p: int, m: int, cap: int, costs: Costs) -> Iterator[Pipe | EagerPipe]:
    """Empty pipes to fill: below p no stage can lead the next by a forward, which the greedy needs to keep all busy."""
    if cap < p:
        yield EagerPipe(p, m, cap, costs)
        return
    for switches in product((True, False), repeat=3):
        yield Pipe(p, m, cap, costs, Switches(*switches))


def _spelled(codes: Sequence[bytearray], m: int) -> Iterator[tuple[Action, ...]]:
    actions = [each(kind, m) for kind in KINDS]
    for row in codes:
        following = [iter(kind) for kind in actions]
        yield tuple([next(following[code]) for code in row])


def _caps(request: Request) -> list[int]:
    """Caps worth trying, largest first; a larger cap adds to the list. At 2p and more the pipe can hide its depth.

    m, 1, eight steps to p and eight to 2p, and doublings of 2p.
    """
    p, m = request.num_stages, request.num_microbatches
    cap = m if request.memory_cap is None else min(request.memory_cap, m)
    doublings = takewhile(lambda size: size <= cap, (2 * p << k for k in count(1)))
    step = max(1, p // 8)
    tried = {m, 1, *range(p, 0, -step), *range(p, 2 * p + 1, step), *doublings}
    return sorted((size for size in tried if size <= cap), reverse=True)


def _least_bubble(p: int, m: int, cap: int, costs: Costs) -> float:
    """No order has less: the first stage has ``cap`` forwards to run until a backward is back, and no more than ``cap``
    micro-batches at once live on it (down the pipe and back)."""
    forward, backward, weight, hop = costs
    trip = p * (forward + backward) + 2 * (p - 1) * hop
    idle = trip - backward - min(cap, m) * forward
    return max(0.0, idle, m * (trip + weight) / cap - m * sum(costs[:3]))


def obstacle(request: Request) -> str | None:
    cap = request.memory_cap
    return f"needs a memory cap of at least one micro-batch, not {cap}" if cap is not None and cap < 1 else None


ZB_HEURISTIC = Schedule(
    name="zb_heuristic", rows=rows, placement=looped, obstacle=obstacle, uses=frozenset({"memory_cap", "costs"})
)
