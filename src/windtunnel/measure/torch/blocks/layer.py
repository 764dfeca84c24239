"""One layer: norms, mixer, feed-forward and residual sums, under a recompute policy."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from windtunnel.measure.torch.blocks.attention import Attention
from windtunnel.measure.torch.blocks.experts import ExpertLayer
from windtunnel.measure.torch.blocks.feed_forward import FeedForward
from windtunnel.measure.torch.blocks.latent_attention import LatentAttention
from windtunnel.measure.torch.blocks.linear_attention import LinearMixer
from windtunnel.measure.torch.blocks.norm import norm
from windtunnel.measure.torch.blocks.recompute import EverySecondProduct, again, discard
from windtunnel.measure.torch.blocks.regions import Regions, played
from windtunnel.ops.sizes import Sizes


class Part(nn.Module):
    """x + leave(inner(enter(norm(x)))): a norm, a tensor-parallel region and a residual sum."""

    def __init__(self, sizes: Sizes, inner: nn.Module, regions: Regions, recompute: frozenset[str]) -> None:
        super().__init__()
        self.norm = norm(sizes.norm, sizes.hidden)
        self.inner = inner
        self.regions = regions
        self._discard = "layernorm" in recompute

    def forward(self, x: Tensor) -> Tensor:
        normal = self.norm(x)
        gathered = self.regions.enter(normal)
        mixed = self.inner(gathered)
        out = x + self.regions.leave(mixed)
        if self._discard:
            discard([gathered], mixed, lambda: [self.regions.enter(self.norm(x))])
        return out


class Layer(nn.Module):
    """A transformer layer as one rank executes it."""

    def __init__(self, sizes: Sizes, recompute: frozenset[str] = frozenset(), regions: Regions | None = None) -> None:
        super().__init__()
        around = regions or played(sizes.shards)
        # Experts take a rank's own tokens: their traffic is between tokens and experts, inside the part.
        inside = Regions() if sizes.feed_forward == "moe" else around
        inner = ((_mixer(sizes, recompute), around), (_feed_forward(sizes, recompute), inside))
        self.parts = nn.ModuleList(Part(sizes, module, its, recompute) for module, its in inner if module is not None)
        self.products = EverySecondProduct() if "per_op" in recompute else None
        self._again = "full" in recompute

    def forward(self, x: Tensor) -> Tensor:
        if self.products is not None:
            kept: Tensor = self.products.run(self._run, x)
            return kept
        mixed: Tensor = again(self._run, x, when=self._again)
        return mixed

    def _run(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x


class Prediction(nn.Module):
    """A multi-token-prediction depth: hidden state and next embedding normed, joined, projected; then a layer."""

    def __init__(self, sizes: Sizes, recompute: frozenset[str] = frozenset()) -> None:
        super().__init__()
        self.norms = nn.ModuleList(norm(sizes.norm, sizes.hidden) for _ in range(2))
        self.projection = nn.Linear(2 * sizes.hidden, sizes.hidden, bias=False)
        self.layer = Layer(sizes, recompute)

    def forward(self, hidden: Tensor, embedding: Tensor) -> Tensor:
        normal, following = self.norms[0](hidden), self.norms[1](embedding)
        predicted: Tensor = self.layer(self.projection(torch.cat((normal, following), -1)))
        return predicted


def _mixer(sizes: Sizes, recompute: frozenset[str]) -> nn.Module | None:
    if sizes.mixer == "linear_attention":
        return LinearMixer(sizes)
    if sizes.mixer == "attention":
        return Attention(sizes, recompute) if sizes.mla is None else LatentAttention(sizes, recompute)
    return None


def _feed_forward(sizes: Sizes, recompute: frozenset[str]) -> nn.Module | None:
    if sizes.feed_forward == "moe":
        return ExpertLayer(sizes, recompute)
    if sizes.feed_forward == "dense":
        return FeedForward(sizes.hidden, sizes.width, gated=sizes.gated, recompute="mlp" in recompute)
    return None
