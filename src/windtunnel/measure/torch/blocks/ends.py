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
    """Final norm and logits; fp32 cross-entropy over the vocabulary, of which a tensor-parallel rank holds a part."""

    def __init__(self, sizes: Sizes, regions: Regions, first: int = 0) -> None:
        super().__init__()
        self.first, self.whole = first, sizes.tp == 1
        self.norm = norm(sizes.norm, sizes.hidden)
        self.logits = nn.Linear(sizes.hidden, sizes.vocab, bias=False)
        self.regions = regions

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        scores = self.scores(x)
        if self.whole:
            return cross_entropy(scores, labels)
        return vocab_parallel_cross_entropy(scores, labels - self.first, self.regions)

    def scores(self, x: Tensor) -> Tensor:
        """Logits [b, s, vocab]."""
        logits: Tensor = self.logits(self.regions.enter(self.norm(x)))
        return logits


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean negative log-likelihood [1]; keeps the fp32 log-softmax alone."""
    shares = torch.log_softmax(logits.flatten(0, -2), -1, dtype=torch.float32)
    return -shares.gather(1, labels.reshape(-1, 1)).mean()


def vocab_parallel_cross_entropy(logits: Tensor, labels: Tensor, regions: Regions) -> Tensor:
    """Mean negative log-likelihood [1] over ranks that hold a part of the vocabulary each.

    ``labels`` count from the first logit of this rank. Ranks reduce the highest logit, the sum and the label's logit of
    every token, as Megatron-core does.
    """
    scores, local = logits.flatten(0, -2).float(), labels.reshape(-1, 1)
    scores = scores - regions.highest(scores.detach().max(-1).values)[:, None]
    total = regions.sum(scores.exp().sum(-1))
    mine = (local >= 0) & (local < scores.shape[-1])
    chosen = regions.sum((scores.gather(1, local.clamp(0, scores.shape[-1] - 1)) * mine).squeeze(1))
    return (total.log() - chosen).mean()
