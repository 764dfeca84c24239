"""Mixture of experts on one rank: router, dispatch by index, local experts, combine; eager, dropless."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from windtunnel.measure.torch.blocks.feed_forward import FeedForward
from windtunnel.measure.torch.blocks.recompute import again
from windtunnel.ops.sizes import Sizes


class ExpertLayer(nn.Module):
    """Routed and shared experts of a rank.

    A rank that holds E/ep of the experts receives as many rows as it has tokens · k on balance: its router's choice
    among all E is folded onto the local ones, so that shapes and counts are those of the group's rank. A ``load``
    beyond that is copies of its tokens, half of them for the first expert, a quarter for the second and so on; below
    it, the last copies are dropped.
    """

    def __init__(self, sizes: Sizes, recompute: frozenset[str]) -> None:
        super().__init__()
        assert sizes.experts is not None
        experts, h = sizes.experts, sizes.hidden
        self.num_local, self.per_token, self.load = experts.local, experts.per_token, experts.load
        self.router = nn.Linear(h, experts.num_experts, bias=False)
        self.gate = _matrices(experts.local, h, experts.width) if sizes.gated else None
        self.up = _matrices(experts.local, h, experts.width)
        self.down = _matrices(experts.local, experts.width, h)
        shared = experts.shared_width
        redone = "shared_experts" in recompute and "moe" not in recompute
        self.shared = FeedForward(h, shared, gated=sizes.gated, recompute=redone) if shared else None
        self._again = "moe" in recompute

    def forward(self, x: Tensor) -> Tensor:
        mixed: Tensor = again(self._run, x, when=self._again)
        return mixed

    def _run(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        scores = torch.softmax(self.router(rows), -1, dtype=torch.float32)
        weights, chosen = scores.topk(self.per_token, -1)
        copies, experts = _loaded(chosen.flatten() % self.num_local, self.num_local, self.load)
        sorting = experts.argsort(stable=True)
        counts = torch.bincount(experts, minlength=self.num_local).tolist()
        order = sorting if copies is None else copies[sorting]
        source = order // self.per_token
        routed = self._experts(rows[source], counts)
        weighted = routed * weights.flatten()[order].to(x.dtype)[:, None]
        into = source[:, None].expand(-1, rows.shape[-1])
        mixed = torch.zeros_like(rows).scatter_add(0, into, weighted).view_as(x)
        return mixed if self.shared is None else mixed + self.shared(x)

    def _experts(self, rows: Tensor, counts: list[int]) -> Tensor:
        """Each expert on its own rows, one matrix product a matrix."""
        up = _grouped(rows, self.up, counts)
        if self.gate is None:
            return _grouped(torch.nn.functional.gelu(up), self.down, counts)
        return _grouped(silu(_grouped(rows, self.gate, counts)) * up, self.down, counts)


def _loaded(experts: Tensor, num_local: int, load: float) -> tuple[Tensor | None, Tensor]:
    """Which choices a rank of ``load`` executes, None for its own, and the local expert of each."""
    own = experts.numel()
    extra = round(load * own) - own
    if extra == 0:
        return None, experts
    copies = torch.arange(own + extra, device=experts.device) % own
    if extra < 0:
        return copies, experts[copies]
    halves = 0.5 ** torch.arange(1, num_local + 1, dtype=torch.float64)
    bounds = (halves.cumsum(0) / halves.sum() * extra).round().to(experts.device)
    hot = torch.searchsorted(bounds, torch.arange(extra, device=experts.device).double(), right=True)
    return copies, torch.cat((experts, hot))


def _grouped(rows: Tensor, matrices: nn.Parameter, counts: list[int]) -> Tensor:
    product: Tensor = _Grouped.apply(rows, matrices, counts)
    return product


class _Grouped(torch.autograd.Function):
    """Rows sorted by expert times each expert's matrix [experts, in, out]; keeps its input as one tensor."""

    @staticmethod
    def forward(ctx: object, rows: Tensor, matrices: Tensor, counts: list[int]) -> Tensor:
        ctx.save_for_backward(rows, matrices)  # type: ignore[attr-defined]
        ctx.counts = counts  # type: ignore[attr-defined]
        result = rows.new_empty(rows.shape[0], matrices.shape[-1])
        for part, into, matrix in zip(rows.split(counts), result.split(counts), matrices, strict=True):
            torch.mm(part, matrix, out=into)
        return result

    @staticmethod
    def backward(ctx: object, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        rows, matrices = ctx.saved_tensors  # type: ignore[attr-defined]
        counts = ctx.counts  # type: ignore[attr-defined]
        (gradient,) = gradients
        into = torch.empty_like(rows)
        of_matrices = torch.empty_like(matrices)
        pieces = zip(gradient.split(counts), rows.split(counts), into.split(counts), matrices, of_matrices, strict=True)
        for part, row, result, matrix, weight in pieces:
            torch.mm(part, matrix.T, out=result)
            torch.mm(row.T, part, out=weight)
        return into, of_matrices, None


def _matrices(experts: int, rows: int, cols: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(experts, rows, cols) * rows**-0.5)
