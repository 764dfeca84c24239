"""Schedules with controllable memory: a repeating V-shaped pattern, squeezed greedily (Qi et al., 2024).

Time is counted in slots; F, B and W of a chunk take one slot each. A *lane* is a kind on a chunk: the actions of a lane
run in the order of their micro-batches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from windtunnel.schedule.action import Action, Kind, Rows
from windtunnel.schedule.base import each

PERIOD = 6
FOOTPRINT: dict[Kind, int] = {"F": 1, "B": 0, "W": -1}
PATTERN: tuple[tuple[Kind, int], ...] = (("F", 0), ("F", 1), ("B", 1), ("B", 0))

Phase = Literal["warm-up", "steady", "cool-down"]
Lanes = Mapping[tuple[Kind, int], Sequence[Action]]
Seeds = Sequence[tuple[int, int, int, int]]


@dataclass(slots=True)
class _Rank:
    """What runs in which slot and the reverse; ``alive[slot]`` chunks are kept once the slot is over."""

    slots: dict[int, Action]
    times: dict[Action, int]
    phases: dict[Action, Phase]
    alive: list[int]

    def place(self, action: Action, slot: int) -> None:
        self.slots[slot] = action
        self.times[action] = slot

    def move(self, action: Action, slot: int) -> None:
        del self.slots[self.times[action]]
        self.place(action, slot)

    def idle_from(self, slot: int) -> int:
        while slot in self.slots:
            slot += 1
        return slot


def squeezed_rows(seeds: Seeds, num_microbatches: int) -> Rows:
    """Rows of the pattern that starts at ``seeds[rank]`` (F0, F1, B1, B0 of micro-batch 0) and repeats every six slots.

    The peak of the raw pattern, over all ranks, bounds the squeezed one while forwards run. Squeezing changes the ends
    of the pattern and leaves its middle as it is, so few micro-batches tell how many run.
    """
    few = min(num_microbatches, len(seeds) + 6)
    squeezed = _squeezed(seeds, few)
    if few == num_microbatches:
        return squeezed
    lanes = {(kind, chunk): each(kind, num_microbatches, chunk) for kind in FOOTPRINT for chunk in (0, 1)}
    longer = [_prolonged(row, num_microbatches - few, lanes) for row in squeezed]
    known = [row for row in longer if row is not None]
    return tuple(known) if len(known) == len(seeds) else _squeezed(seeds, num_microbatches)


def _prolonged(row: Sequence[Action], more: int, lanes: Lanes) -> tuple[Action, ...] | None:
    """``row`` with ``more`` micro-batches in its middle, which two equal periods show; None without such."""
    for end in range(len(row) - PERIOD, PERIOD - 1, -1):
        period = row[end - PERIOD : end]
        if _later(period, 1, lanes) == list(row[end : end + PERIOD]):
            following = [lanes[kind, chunk][first + 1 : first + 1 + more] for kind, first, chunk in period]
            middle = chain.from_iterable(zip(*following, strict=True))
            return (*row[:end], *middle, *_later(row[end:], more, lanes))
    return None


def _later(actions: Sequence[Action], by: int, lanes: Lanes) -> list[Action]:
    return [lanes[kind, chunk][microbatch + by] for kind, microbatch, chunk in actions]


def _squeezed(seeds: Seeds, num_microbatches: int) -> Rows:
    ranks = [_patterned(seed, num_microbatches) for seed in seeds]
    cap = max(max(rank.alive) for rank in ranks)
    for rank, action in _in_time(ranks):
        _advance(ranks, rank, action, cap)
    _compact_cooldown(ranks)
    return tuple(tuple(action for _, action in sorted(rank.slots.items())) for rank in ranks)


def _patterned(seed: Sequence[int], num_microbatches: int) -> _Rank:
    """The raw pattern of one rank; each weight gradient takes the first idle slot after its input gradient."""
    rank = _Rank({}, {}, {}, [])
    for microbatch in range(num_microbatches):
        for (kind, chunk), start in zip(PATTERN, seed, strict=True):
            rank.place(Action(kind, microbatch, chunk), start + PERIOD * microbatch)
    waiting: deque[Action] = deque()
    phase: Phase = "warm-up"
    slot, end, alive = 0, max(rank.slots), 0
    while slot <= end or waiting:
        action = rank.slots.get(slot)
        if action is None and waiting:
            action = waiting.popleft()
            rank.place(action, slot)
        if action is not None:
            rank.phases[action] = phase
            alive += FOOTPRINT[action.kind]
            phase = _phase_after(action, phase, num_microbatches)
            if action.kind == "B":
                waiting.append(action._replace(kind="W"))
        rank.alive.append(alive)
        slot += 1
    return rank


def _phase_after(action: Action, phase: Phase, num_microbatches: int) -> Phase:
    """Steady once the first micro-batch has left the rank, cooling down once the last has passed the turn."""
    if action == ("B", 0, 0):
        return "steady"
    if action == ("F", num_microbatches - 1, 1):
        return "cool-down"
    return phase


def _in_time(ranks: Sequence[_Rank]) -> list[tuple[int, Action]]:
    """(rank, action) by slot, then rank."""
    entries = ((slot, index, action) for index, rank in enumerate(ranks) for slot, action in rank.slots.items())
    return [(index, action) for _, index, action in sorted(entries)]


def _earliest(ranks: Sequence[_Rank], index: int, action: Action) -> int:
    """First slot after the inputs of the action and after its lane's previous micro-batch."""
    latest = -1
    for source, needed in _needs(index, action, len(ranks)):
        latest = max(latest, ranks[source].times[needed])
    return latest + 1


def _needs(index: int, action: Action, num_ranks: int) -> Iterable[tuple[int, Action]]:
    """(rank, action) pairs that the action waits for."""
    kind, microbatch, chunk = action
    if microbatch:
        yield index, Action(kind, microbatch - 1, chunk)
    if kind == "W":
        yield index, Action("B", microbatch, chunk)
        return
    # forwards run down the ranks on chunk 0 and up on chunk 1, backwards the other way round
    downward = (kind == "F") == (chunk == 0)
    source = index - 1 if downward else index + 1
    if 0 <= source < num_ranks:
        yield source, action
    elif source == num_ranks:
        yield index, Action(kind, microbatch, 1 - chunk)
    elif kind == "B":
        yield index, Action("F", microbatch, 1)


def _advance(ranks: Sequence[_Rank], index: int, action: Action, cap: int) -> None:
    """Move the action to the earliest idle slot from which its footprint stays within ``cap`` up to its old slot."""
    rank, growth = ranks[index], FOOTPRINT[action.kind]
    slot = rank.times[action]
    candidate = rank.idle_from(_earliest(ranks, index, action))
    while candidate < slot:
        full = next((k for k in range(slot - 1, candidate - 1, -1) if rank.alive[k] + growth > cap), None)
        if full is None:
            for k in range(candidate, slot):
                rank.alive[k] += growth
            rank.move(action, candidate)
            return
        candidate = rank.idle_from(full + 1)


def _compact_cooldown(ranks: Sequence[_Rank]) -> None:
    """Move the input gradients of the cool-down ahead of its weight gradients, which then fill the idle slots."""
    cooling = [(index, action) for index, action in _in_time(ranks) if ranks[index].phases[action] == "cool-down"]
    weights = [(index, action) for index, action in cooling if action.kind == "W"]
    for index, action in cooling:
        rank = ranks[index]
        if action.kind == "W":
            del rank.slots[rank.times[action]]
        else:
            rank.move(action, min(rank.idle_from(_earliest(ranks, index, action)), rank.times[action]))
    for index, action in weights:
        ranks[index].place(action, ranks[index].idle_from(_earliest(ranks, index, action)))
