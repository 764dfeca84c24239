"""The plans of one grid point as a product: variants in rows, choices in columns, each with what makes arrays of it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from windtunnel.job.plan import Dispatcher, Sharding, Strategy
from windtunnel.projection.choices import Choice, Kernels, Recompute, Variant
from windtunnel.projection.contents import Floats, Ints

T = TypeVar("T", bound=Hashable)
Kept = tuple[Dispatcher, float]
"""What of the kernels changes the bytes a unit keeps: dispatcher, and the share of activations on the host."""
State = tuple[Strategy, int, Literal["none", "cpu"]]
"""Strategy, shard size and where the optimizer is."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rows:
    """Variants: row i recomputes ``recomputes[recompute[i]]`` and runs ``kernels[kernel[i]]``.

    ``holds[i]`` numbers what it keeps alive: ``held`` has each recompute and kernel of which that differs.
    """

    recomputes: tuple[Recompute | None, ...]
    kernels: tuple[Kernels, ...]
    recompute: Ints
    kernel: Ints
    held: tuple[tuple[int, Kept], ...]
    holds: Ints

    def __getitem__(self, row: int) -> Variant:
        return Variant(self.recomputes[self.recompute[row]], self.kernels[self.kernel[row]])

    def __len__(self) -> int:
        return len(self.recompute)

    def some(self, rows: Ints) -> Rows:
        return replace(self, recompute=self.recompute[rows], kernel=self.kernel[rows], holds=self.holds[rows])


def as_rows(
    recomputes: tuple[Recompute | None, ...], kernels: tuple[Kernels, ...], pairs: Sequence[tuple[int, int]]
) -> Rows:
    """The variants of these pairs of a recompute and a kernel, by number."""
    numbered = np.array(pairs, dtype=np.intp)
    held, holds = _numbered([(recompute, kernels[kernel].kept) for recompute, kernel in pairs])
    return Rows(
        recomputes=recomputes,
        kernels=kernels,
        recompute=numbered[:, 0],
        kernel=numbered[:, 1],
        held=held,
        holds=holds,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Columns:
    """Choices, their switches as numbers, and which of them shard (``group``) and hold state (``state``) alike."""

    choices: tuple[Choice, ...]
    grad_reduce: Floats
    param_gather: Floats
    on_host: Floats
    groups: tuple[tuple[Strategy, int], ...]
    group: Ints
    lone: Ints
    """One choice of each that differ in more than where the optimizer is, and ``traffic``: which of them each is."""
    traffic: Ints
    states: tuple[State, ...]
    state: Ints
    whole: NDArray[np.bool_]
    """Whether a state shards the parameters too."""


@lru_cache(maxsize=1024)
def as_columns(choices: tuple[Choice, ...]) -> Columns:
    groups, group = _numbered([(choice.strategy, choice.shard_size) for choice in choices])
    states, state = _numbered([choice.state for choice in choices])
    moving, traffic = _numbered([replace(choice, optimizer_offload="none") for choice in choices])
    return Columns(
        choices=choices,
        grad_reduce=np.array([float(choice.grad_reduce) for choice in choices]),
        param_gather=np.array([float(choice.param_gather) for choice in choices]),
        on_host=np.array([float(choice.optimizer_offload != "none") for choice in choices]),
        groups=groups,
        group=group,
        lone=np.array([traffic.tolist().index(number) for number in range(len(moving))], dtype=np.intp),
        traffic=traffic,
        states=states,
        state=state,
        whole=np.array([Sharding(strategy=s, shard_size=n).shards_parameters for s, n, _ in states]),
    )


def _numbered(values: Sequence[T]) -> tuple[tuple[T, ...], Ints]:
    """Distinct values in order, and the number of each."""
    found = {value: index for index, value in enumerate(dict.fromkeys(values))}
    return tuple(found), np.array([found[value] for value in values], dtype=np.intp)
