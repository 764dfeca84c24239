"""What every schedule is made of: a request, a placement of chunks on ranks, and rows of actions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from windtunnel.schedule.action import Action, Kind, Placement, Rows

Costs = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked of a schedule.

    ``microbatch_group_size`` is how many micro-batches a chunk takes at a stretch, ``memory_cap`` how many a stage may
    keep. ``costs`` are F, B and W of a stage and a hop between stages, in any unit. ``all_forward_at_m_equals_p``:
    every forward precedes every backward when there are as many micro-batches as stages.
    """

    num_stages: int
    num_microbatches: int
    virtual_stages: int = 1
    microbatch_group_size: int | None = None
    memory_cap: int | None = None
    orders: tuple[tuple[str, ...], ...] | None = None
    costs: Costs | None = None
    all_forward_at_m_equals_p: bool = True

    @property
    def group_size(self) -> int:
        return self.num_stages if self.microbatch_group_size is None else self.microbatch_group_size


def never(_: Request) -> str | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """One schedule: ``rows`` spells it out, ``obstacle`` says in one sentence why it cannot run a request, or None.

    ``virtual_stages`` is the only number of chunks per stage it accepts; None accepts ``min_virtual_stages`` or more.
    ``uses`` names the optional fields of a request that change its rows. ``overlapped`` finds the pairs in the rows,
    ``placed`` the placement where the rows decide it.
    """

    name: str
    rows: Callable[[Request], Rows]
    placement: Callable[[int, int], Placement]
    virtual_stages: int | None = 1
    min_virtual_stages: int = 2
    obstacle: Callable[[Request], str | None] = never
    uses: frozenset[str] = frozenset()
    overlapped: Callable[[Request, Rows], tuple[tuple[int, ...], ...]] | None = None
    placed: Callable[[Request, Rows], Placement] | None = None


def looped(num_stages: int, virtual_stages: int) -> Placement:
    """Chunk c of rank r is the global chunk c·p + r."""
    return tuple(tuple(c * num_stages + r for c in range(virtual_stages)) for r in range(num_stages))


def v_shaped(num_stages: int, virtual_stages: int = 2) -> Placement:
    """Rank r holds the global chunks r and 2p-1-r: embedding and head both on rank 0, the turn on rank p-1."""
    return tuple((r, virtual_stages * num_stages - 1 - r) for r in range(num_stages))


def bidirectional(num_stages: int, _: int = 1) -> Placement:
    """Rank r holds the whole stages r (micro-batches going down) and p-1-r (micro-batches coming up)."""
    return tuple((r, num_stages - 1 - r) for r in range(num_stages))


def each(kind: Kind, num_microbatches: int, chunk: int = 0) -> list[Action]:
    """``kind`` of every micro-batch in turn on one chunk."""
    return [Action(kind, i, chunk) for i in range(num_microbatches)]


def grouped(request: Request, kind: Kind) -> list[Action]:
    """``kind`` of every micro-batch and chunk, in groups of micro-batches; backward from the last chunk down."""
    m, group = request.num_microbatches, request.group_size
    chunks = range(request.virtual_stages)
    visited = chunks if kind == "F" else chunks[::-1]
    return [
        Action(kind, i, chunk)
        for start in range(0, m, group)
        for chunk in visited
        for i in range(start, min(start + group, m))
    ]


def one_forward_one_backward(
    forwards: Sequence[Action], backwards: Sequence[Action], warmup: int
) -> tuple[Action, ...]:
    """``warmup`` forwards, then pairs of forward and backward, then the remaining backwards."""
    row = list(forwards[:warmup])
    for forward, backward in zip(forwards[warmup:], backwards, strict=False):
        row += (forward, backward)
    row += backwards[len(forwards) - warmup :]
    return tuple(row)


def one_forward_one_split_backward(
    forwards: Sequence[Action], inputs: Sequence[Action], weights: Sequence[Action], warmup: int, delay: int
) -> tuple[Action, ...]:
    """As ``one_forward_one_backward``; the weight gradient follows ``delay`` backwards after its own input gradient."""
    row = list(forwards[:warmup])
    for step, backward in enumerate(inputs):
        row += forwards[warmup + step : warmup + step + 1]
        row.append(backward)
        if step >= delay:
            row.append(weights[step - delay])
    row += weights[max(len(weights) - delay, 0) :]
    return tuple(row)
