"""Actions and orders: what each pipeline rank executes, in which sequence; integers only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

Kind = Literal["F", "B", "W", "BW"]


class Action(NamedTuple):
    """``kind`` of micro-batch ``microbatch`` on the rank's own chunk ``chunk`` (0..v-1).

    F forward, B backward for inputs, W backward for weights, BW both at once.
    """

    kind: Kind
    microbatch: int
    chunk: int


@dataclass(frozen=True, slots=True)
class Order:
    """A schedule spelled out: ``actions[rank]`` run strictly in sequence; ``placement[rank][chunk]`` is the global chunk."""

    name: str
    num_stages: int
    num_microbatches: int
    virtual_stages: int
    actions: tuple[tuple[Action, ...], ...]
    placement: tuple[tuple[int, ...], ...]
