"""Seven spellings of activation recomputation, one meaning: what each layer executes again in backward."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from windtunnel.job.plan import FULL, PER_OP, Chunk

NOTHING: frozenset[str] = frozenset()
CORE_ATTENTION = frozenset({"core_attn"})


def recomputed(
    policy: str,
    *,
    num_layers: int | None,
    layers: Collection[int] | None,
    modules: Collection[str] | None,
    layout: Sequence[Chunk],
    num_mtp_layers: int,
) -> tuple[frozenset[str], ...]:
    """What each transformer layer, then each MTP layer, re-executes: modules, ``{"full"}`` or ``{"per_op"}``.

    ``block`` recomputes the first ``num_layers`` layers of every chunk, or the ``layers`` named; it leaves MTP layers
    alone, as Megatron-core does. ``full`` and ``uniform`` with ``num_layers`` 0 recompute nothing.
    """
    total = sum(len(chunk.layers) for chunk in layout)
    if policy == "block":
        chosen = _first_of_each_chunk(layout, num_layers or 0) if layers is None else frozenset(layers)
        each = tuple(frozenset({FULL}) if layer in chosen else NOTHING for layer in range(total))
        return each + (NOTHING,) * num_mtp_layers
    return (_everywhere(policy, num_layers, modules),) * (total + num_mtp_layers)


def _everywhere(policy: str, num_layers: int | None, modules: Collection[str] | None) -> frozenset[str]:
    if policy in ("full", "uniform"):
        return NOTHING if num_layers == 0 else frozenset({FULL})
    if policy == "modules":
        return frozenset(modules or ())
    return {"selective": CORE_ATTENTION, "per_op": frozenset({PER_OP})}.get(policy, NOTHING)


def _first_of_each_chunk(layout: Sequence[Chunk], count: int) -> frozenset[int]:
    return frozenset(layer for chunk in layout for layer in chunk.layers[:count])


def spelled(layers: Sequence[frozenset[str]], num_layers: int) -> dict[str, Any]:
    """The shortest policy that recomputes the same: one for all layers, else whole layers by id."""
    kinds = set(layers)
    if len(kinds) > 1:
        return {"policy": "block", "layers": [n for n, what in enumerate(layers[:num_layers]) if FULL in what]}
    (what,) = kinds or {NOTHING}
    named = {NOTHING: "none", CORE_ATTENTION: "selective", frozenset({FULL}): "full", frozenset({PER_OP}): "per_op"}
    return {"policy": named[what]} if what in named else {"policy": "modules", "modules": sorted(what)}
