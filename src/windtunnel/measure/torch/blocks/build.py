"""The block of a unit and random inputs for it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from windtunnel.measure.torch.blocks.ends import Embedding, Head
from windtunnel.measure.torch.blocks.layer import Layer, Prediction
from windtunnel.measure.torch.blocks.regions import Regions, played
from windtunnel.ops.sizes import Sizes


def build(sizes: Sizes, recompute: frozenset[str] = frozenset(), regions: Regions | None = None) -> nn.Module:
    """The module of one unit as one rank holds it, fp32 parameters."""
    around = regions or played(sizes.shards)
    if sizes.kind == "embedding":
        return Embedding(sizes, around)
    if sizes.kind != "layer":
        return Head(sizes, around)
    return Prediction(sizes, recompute) if sizes.mtp else Layer(sizes, recompute, around)


def inputs(sizes: Sizes, *, dtype: torch.dtype, device: str = "cpu") -> tuple[Tensor, ...]:
    """Normal hidden states (they want a gradient) and uniform token ids, as the unit takes them."""
    generator = torch.Generator(device).manual_seed(1)

    def ids() -> Tensor:
        shape = (sizes.batch, sizes.sequence)
        return torch.randint(0, sizes.vocab, shape, device=device, generator=generator)

    def hidden() -> Tensor:
        shape = (sizes.batch, sizes.sequence // sizes.shards, sizes.hidden)
        return torch.randn(shape, device=device, dtype=dtype, generator=generator, requires_grad=True)

    if sizes.kind == "embedding":
        return (ids(),)
    if sizes.kind != "layer":
        return hidden(), ids()
    return (hidden(), hidden()) if sizes.mtp else (hidden(),)
