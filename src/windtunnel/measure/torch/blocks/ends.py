"""The ends of a model: embedding, and final norm with logits and cross-entropy."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from windtunnel.measure.torch.blocks.norm import norm
from windtunnel.measure.torch.blocks.regions import Regions
from windtunnel.ops.sizes import Sizes


class Embedding(nn.Module):
    """Rows of a table; a tensor-parallel rank holds ``vocab`` of them, looks up its own and leaves the others zero."""

    def __init__(self, sizes: Sizes, regions: Regions, first: int = 0) -> None:
        super().__init__()
        self.table = nn.Embedding(sizes.vocab, sizes.hidden)
        self.regions, self.first, self.whole = regions, first, sizes.tp == 1

    def forward(self, tokens: Tensor) -> Tensor:
        if self.whole:
            found: Tensor = self.table(tokens)
            return found
        local = tokens - self.first
        mine = (local >= 0) & (local < self.table.num_embeddings)
        rows = self.table(local.clamp(0, self.table.num_embeddings - 1))
        return self.regions.leave(rows * mine[..., None])


class Head(nn.Module):
    """Final norm and logits of a rank's part of the vocabulary; fp32 cross-entropy over that part."""

    def __init__(self, sizes: Sizes, regions: Regions) -> None:
        super().__init__()
        self.norm = norm(sizes.norm, sizes.hidden)
        self.logits = nn.Linear(sizes.hidden, sizes.vocab, bias=False)
        self.regions = regions

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        return cross_entropy(self.scores(x), labels)

    def scores(self, x: Tensor) -> Tensor:
        """Logits [b, s, vocab]."""
        logits: Tensor = self.logits(self.regions.enter(self.norm(x)))
        return logits


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean negative log-likelihood [1]; keeps the fp32 log-softmax alone."""
    shares = torch.log_softmax(logits.flatten(0, -2), -1, dtype=torch.float32)
    return -shares.gather(1, labels.reshape(-1, 1)).mean()
