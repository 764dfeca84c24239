"""An order compiled for execution: every action once, its producers, and a sequence in which all inputs are ready."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from operator import add

from windtunnel.errors import Fault, LegalityError
from windtunnel.schedule.action import Action, Kind, Order, format_action

KINDS: tuple[Kind, ...] = ("F", "B", "W", "BW")
NOWHERE = -1
PATH = "plan.pipeline.orders"


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """Actions are nodes, numbered rank by rank in the sequence of the order; rank r owns first[r]..first[r+1]-1.

    ``node``, ``rank``, ``producer``, ``edge`` and ``slot`` are columns of one table, in topological order; ``producer``
    is the node on another rank whose end it waits for (num_nodes where there is none), ``edge`` the lower global chunk
    of that hop (num_chunks - 1 where there is none), ``slot`` = kind index × num_chunks + global chunk. The nodes in
    ``paired`` form overlapped pairs with their successors and stand next to them in the table.
    Waiting for an action of the same rank needs no entry: the sequence of the rank implies it.
    ``kinds``, ``microbatches`` and ``chunks`` (global) are per rank.
    """

    num_chunks: int
    num_nodes: int
    first: tuple[int, ...]
    node: tuple[int, ...]
    rank: tuple[int, ...]
    producer: tuple[int, ...]
    edge: tuple[int, ...]
    slot: tuple[int, ...]
    paired: frozenset[int]
    kinds: tuple[tuple[Kind, ...], ...]
    microbatches: tuple[tuple[int, ...], ...]
    chunks: tuple[tuple[int, ...], ...]


@lru_cache(maxsize=256)
def compile_order(order: Order) -> Program:
    """Compile ``order``, cached.

    Raises LegalityError where an action is missing, doubled or misplaced, and where the order deadlocks (the cycle).
    """
    first = tuple(accumulate((len(row) for row in order.actions), initial=0))
    paired = frozenset(
        first[rank] + position for rank, positions in enumerate(order.overlapped) for position in positions
    )
    producers = _producers(order, first, paired)
    nodes = _topological(order, first, producers, paired)
    num_nodes, num_chunks = first[-1], order.num_chunks
    ranks = [rank for rank, row in enumerate(order.actions) for _ in row]
    remote = _remote(producers, ranks)
    kinds, chunks = _kinds(order), _global_chunks(order)
    edges, slots = _edges_and_slots(kinds, chunks, num_chunks)
    return Program(
        num_chunks=num_chunks,
        num_nodes=num_nodes,
        first=first,
        node=tuple(nodes),
        rank=_picked(ranks, nodes),
        producer=_picked(remote, nodes),
        edge=tuple([edges[n] if remote[n] != num_nodes else num_chunks - 1 for n in nodes]),
        slot=_picked(slots, nodes),
        paired=paired,
        kinds=kinds,
        microbatches=tuple(tuple([action[1] for action in row]) for row in order.actions),
        chunks=chunks,
    )


def _picked(column: Sequence[int], nodes: Sequence[int]) -> tuple[int, ...]:
    return tuple(map(column.__getitem__, nodes))


def _remote(producers: Sequence[int], ranks: Sequence[int]) -> list[int]:
    """Producers on another rank; past the last node where there is none."""
    nothing = len(producers)
    return [
        nothing if producer == NOWHERE or ranks[producer] == rank else producer
        for producer, rank in zip(producers, ranks, strict=True)
    ]


def _kinds(order: Order) -> tuple[tuple[Kind, ...], ...]:
    return tuple(tuple([action[0] for action in row]) for row in order.actions)


def _global_chunks(order: Order) -> tuple[tuple[int, ...], ...]:
    return tuple(
        tuple([held[action[2]] for action in row]) for row, held in zip(order.actions, order.placement, strict=True)
    )


def _edges_and_slots(
    kinds: Sequence[Sequence[Kind]], chunks: Sequence[Sequence[int]], num_chunks: int
) -> tuple[list[int], list[int]]:
    """Per node: F arrives over the edge below its chunk, B over the edge above it; slot = kind × num_chunks + chunk."""
    base = {kind: KINDS.index(kind) * num_chunks for kind in KINDS}
    edges: list[int] = []
    slots: list[int] = []
    for row, held in zip(kinds, chunks, strict=True):
        edges += [chunk - 1 if kind == "F" else chunk for kind, chunk in zip(row, held, strict=True)]
        slots += map(add, map(base.__getitem__, row), held)
    return edges, slots


def _positions(order: Order, first: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
    """Node of F, of B (or BW) and of W (or BW), indexed by micro-batch × num_chunks + global chunk."""
    size, num_chunks, m = order.num_microbatches * order.num_chunks, order.num_chunks, order.num_microbatches
    forward, backward, weight = [NOWHERE] * size, [NOWHERE] * size, [NOWHERE] * size
    tables = {"F": (forward,), "B": (backward,), "W": (weight,), "BW": (backward, weight)}
    for rank, (row, held) in enumerate(zip(order.actions, order.placement, strict=True)):
        width = len(held)
        for node, action in enumerate(row, first[rank]):
            kind, microbatch, local = action
            if microbatch >= m or local >= width:
                raise LegalityError(_misplaced(order, rank, action))
            key = microbatch * num_chunks + held[local]
            for table in tables[kind]:
                if table[key] != NOWHERE:
                    raise LegalityError(_doubled(rank, action))
                table[key] = node
    for missing, table in zip(("F", "B", "W"), (forward, backward, weight), strict=True):
        if NOWHERE in table:
            microbatch, chunk = divmod(table.index(NOWHERE), num_chunks)
            raise LegalityError(_missing(order, missing, microbatch, chunk))
    return forward, backward, weight


def _producers(order: Order, first: Sequence[int], paired: frozenset[int]) -> list[int]:
    """Per node the node of the neighbouring chunk it waits for, after checking what it waits for on its own rank."""
    forward, backward, _ = _positions(order, first)
    num_chunks, last = order.num_chunks, order.num_chunks - 1
    producers: list[int] = []
    wait = producers.append
    for rank, (row, held) in enumerate(zip(order.actions, order.placement, strict=True)):
        start = first[rank]
        for node, (kind, microbatch, local) in enumerate(row, start):
            chunk = held[local]
            key = microbatch * num_chunks + chunk
            if kind == "F":
                wait(forward[key - 1] if chunk else NOWHERE)
                continue
            own = backward[key] if kind == "W" else forward[key]
            if not start <= own < node - (node - 1 in paired):
                raise LegalityError(_too_early(order, rank, row[node - start], own, first))
            wait(NOWHERE if kind == "W" or chunk == last else backward[key + 1])
    return producers


def _topological(order: Order, first: Sequence[int], producers: Sequence[int], paired: frozenset[int]) -> list[int]:
    """Nodes such that every producer comes first: each rank runs on until an input is missing."""
    heads = list(first[:-1])
    done = bytearray(len(producers) + 1)
    done[NOWHERE] = 1  # what waits for nothing
    # a pair starts once both can: its first action waits for the inputs of the second too
    others = [producers[n + 1] if n in paired else NOWHERE for n in range(len(producers))] if paired else producers
    waiting: dict[int, int] = {}
    ready = list(range(len(order.actions)))
    sequence: list[int] = []
    run = sequence.append
    while ready:
        rank = ready.pop()
        end = first[rank + 1]
        for node in range(heads[rank], end):
            awaited = producers[node]
            if done[awaited]:
                awaited = others[node]
            if not done[awaited]:
                waiting[awaited] = rank
                heads[rank] = node
                break
            done[node] = 1
            run(node)
            if node in waiting:
                ready.append(waiting.pop(node))
        else:
            heads[rank] = end
    if len(sequence) < len(producers):
        blocked = {rank: node for node, rank in waiting.items()}
        raise LegalityError(_deadlock(order, first, heads, blocked))
    return sequence


def _locate(order: Order, first: Sequence[int], node: int) -> tuple[int, Action]:
    rank = next(r for r in range(len(order.actions)) if first[r] <= node < first[r + 1])
    return rank, order.actions[rank][node - first[rank]]


def _deadlock(order: Order, first: Sequence[int], heads: Sequence[int], blocked: Mapping[int, int]) -> Fault:
    """``blocked[rank]`` is the node that the rank, stuck at ``heads[rank]``, waits for."""
    rank = min(blocked)
    seen: list[int] = []
    hops: list[str] = []
    while rank not in seen:
        seen.append(rank)
        _, action = _locate(order, first, heads[rank])
        source, wanted = _locate(order, first, blocked[rank])
        hops.append(f"rank {rank} at {format_action(action)} waits for {format_action(wanted)} of rank {source}")
        rank = source
    cycle = ", ".join(hops[seen.index(rank) :])
    return Fault(PATH, order.name, f"the order deadlocks: {cycle}", "move the awaited actions before those that wait")


def _too_early(order: Order, rank: int, action: Action, own: int, first: Sequence[int]) -> Fault:
    source, wanted = _locate(order, first, own)
    where = (
        f"it comes before {format_action(wanted)}, which it waits for" if source == rank else f"runs on rank {source}"
    )
    rule = f"rank {rank}: {format_action(action)} needs {format_action(wanted)} earlier on the same rank, but {where}"
    return Fault(PATH, order.name, rule, f"put {format_action(wanted)} before {format_action(action)} on rank {rank}")


def _misplaced(order: Order, rank: int, action: Action) -> Fault:
    held, m = len(order.placement[rank]), order.num_microbatches
    rule = f"rank {rank} has {held} chunks (0..{held - 1}) and {m} micro-batches (0..{m - 1})"
    return Fault(PATH, format_action(action), rule, "name a chunk and a micro-batch that exist")


def _doubled(rank: int, action: Action) -> Fault:
    rule = f"rank {rank} or its twin runs it a second time"
    return Fault(PATH, format_action(action), rule, "list every forward, backward and weight gradient exactly once")


def _missing(order: Order, kind: str, microbatch: int, chunk: int) -> Fault:
    holders = [str(rank) for rank, held in enumerate(order.placement) if chunk in held]
    rule = f"{kind} of micro-batch {microbatch} on global chunk {chunk} (rank {' or '.join(holders)}) is missing"
    return Fault(PATH, order.name, rule, "list every forward, backward and weight gradient exactly once")
