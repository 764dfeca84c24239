"""Actions and orders: what each pipeline rank executes, in which sequence; integers only."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, NamedTuple, cast

from windtunnel.errors import Fault, FormatError

Kind = Literal["F", "B", "W", "BW"]
TOKEN = re.compile(r"(F|BW|B|W)(\d+)\.(\d+)")


class Action(NamedTuple):
    """``kind`` of micro-batch ``microbatch`` on the rank's own chunk ``chunk`` (0..v-1).

    F forward, B backward for inputs, W backward for weights, BW both at once.
    """

    kind: Kind
    microbatch: int
    chunk: int


Rows = tuple[tuple[Action, ...], ...]
Placement = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Order:
    """A schedule spelled out: ``actions[rank]`` run strictly in sequence.

    ``placement[rank][chunk]`` is the global chunk of a local one; ``virtual_stages`` is the number of chunks that make
    one stage. A bidirectional rank holds two whole stages, so its placement has two entries while ``virtual_stages``
    stays 1. ``overlapped[rank]`` lists the positions of actions that run beside the action that follows them: a pair
    starts once both can and hands on its results when both are done.
    """

    name: str
    num_stages: int
    num_microbatches: int
    virtual_stages: int
    actions: Rows
    placement: Placement
    overlapped: tuple[tuple[int, ...], ...] = ()

    def __hash__(self) -> int:
        """Cheap on purpose: orders key caches, and hashing every action would cost more than executing it."""
        return hash((self.name, self.num_stages, self.num_microbatches, self.virtual_stages))

    @property
    def microbatches_per_chunk(self) -> int:
        """Micro-batches that each chunk of a rank runs: all, or half where two directions share the rank."""
        return self.num_microbatches * self.virtual_stages // len(self.placement[0])

    @property
    def num_chunks(self) -> int:
        """Chunks along the model."""
        return self.num_stages * self.virtual_stages


def format_action(action: Action) -> str:
    """``F0.1``: forward of micro-batch 0 on local chunk 1."""
    return f"{action.kind}{action.microbatch}.{action.chunk}"


def parse_action(text: str, path: str = "orders") -> Action:
    """Inverse of ``format_action``. Raises FormatError."""
    match = TOKEN.fullmatch(text.strip())
    if match is None:
        rule = "an action is a kind (F, B, W or BW), a micro-batch, a dot and a chunk of the rank"
        raise FormatError(Fault(path, repr(text), rule, "write it like F0.0 or BW3.1"))
    kind, microbatch, chunk = match.groups()
    return Action(cast("Kind", kind), int(microbatch), int(chunk))
