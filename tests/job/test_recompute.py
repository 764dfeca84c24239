"""Seven spellings of recomputation, one meaning per layer."""

from __future__ import annotations

import pytest

from windtunnel.job.plan import Chunk
from windtunnel.job.recompute import recomputed

LAYOUT = (
    Chunk(layers=(0, 1, 2), embedding=True),
    Chunk(layers=(3, 4)),
    Chunk(layers=(5,), head=True, num_mtp_layers=1),
)
NOTHING: frozenset[str] = frozenset()
FULL = frozenset({"full"})


def meaning(policy: str, *, num_layers: int | None = None, layers: tuple[int, ...] | None = None,
            modules: tuple[str, ...] | None = None) -> tuple[frozenset[str], ...]:  # fmt: skip
    return recomputed(policy, num_layers=num_layers, layers=layers, modules=modules, layout=LAYOUT, num_mtp_layers=1)


@pytest.mark.parametrize(
    ("policy", "each"),
    [("none", NOTHING), ("full", FULL), ("uniform", FULL), ("selective", {"core_attn"}), ("per_op", {"per_op"})],
)
def test_policies_that_treat_all_layers_alike(policy: str, each: set[str]) -> None:
    assert meaning(policy) == (frozenset(each),) * 7


def test_modules_are_taken_as_named() -> None:
    assert meaning("modules", modules=("mlp", "core_attn")) == (frozenset({"mlp", "core_attn"}),) * 7


def test_block_counts_layers_of_each_chunk() -> None:
    assert meaning("block", num_layers=2) == (FULL, FULL, NOTHING, FULL, FULL, FULL, NOTHING)
    assert meaning("block", layers=(1, 5)) == (NOTHING, FULL, NOTHING, NOTHING, NOTHING, FULL, NOTHING)


@pytest.mark.parametrize("policy", ["full", "uniform", "block"])
def test_zero_layers_recompute_nothing(policy: str) -> None:
    assert meaning(policy, num_layers=0) == (NOTHING,) * 7
