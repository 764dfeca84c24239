"""Passes over memory alone: norms, rotary positions, residual sums, activations, routing, permutation, loss."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import gelu, silu

from windtunnel.cost.profile_keys import op_key
from windtunnel.measure.torch.blocks.attention import rotary_tables, rotate
from windtunnel.measure.torch.blocks.ends import cross_entropy
from windtunnel.measure.torch.blocks.norm import norm
from windtunnel.measure.torch.device import clock
from windtunnel.measure.torch.kernels import Timed
from windtunnel.measure.torch.units import DTYPES
from windtunnel.ops.op import Stream
from windtunnel.ops.sizes import Sizes

Pass = tuple[Callable[..., Tensor], list[Tensor]]
"""A differentiable function and the tensors it reads, those that want a gradient first."""


def stream(device: str, described: Stream, sizes: Sizes) -> Timed:
    """One pass of a unit of ``sizes``, forward or backward. Raises KeyError for one that is none of ``PASSES``."""
    named = op_key(described)
    assert named is not None
    function, tensors = PASSES[kind_of(described.name)](sizes, device)
    if described.phase == "F":
        return Timed(named, lambda: function(*tensors), clock(device))
    wanted = [tensor for tensor in tensors if tensor.requires_grad]
    out = function(*tensors)
    gradient = torch.randn_like(out)
    return Timed(named, lambda: torch.autograd.grad(out, wanted, gradient, retain_graph=True), clock(device))


def kind_of(name: str) -> str:
    """The kind of pass a stream's name says: its last word, or the word before a colon."""
    return name.partition(":")[0].rpartition("_")[2]


def _norm(sizes: Sizes, device: str) -> Pass:
    module = norm(sizes.norm, sizes.hidden).to(device=device, dtype=DTYPES[sizes.dtype])
    return module, [_hidden(sizes, device)]


def _rope(sizes: Sizes, device: str) -> Pass:
    cosine, sine = rotary_tables(sizes.sequence, sizes.head_dim, torch.device(device))
    x = _leaf((sizes.batch, sizes.sequence, sizes.heads + sizes.kv_heads, sizes.head_dim), sizes, device)
    return lambda x: rotate(x, cosine, sine), [x]


def _residual(sizes: Sizes, device: str) -> Pass:
    """A sum forward; backward a gradient of two branches is one too."""
    return lambda x, y: _Twice.apply(x) + y, [_hidden(sizes, device), _hidden(sizes, device)]


class _Twice(torch.autograd.Function):
    """The gradient of an input that two branches read: their sum."""

    @staticmethod
    def forward(_: object, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(_: object, *gradients: Tensor) -> Tensor:
        return gradients[0] + gradients[0]


def _activation(sizes: Sizes, device: str) -> Pass:
    rows, width = float(sizes.tokens), sizes.width
    if sizes.experts is not None:
        experts = sizes.experts
        rows, width = rows / sizes.shards * experts.per_token * experts.load, experts.width
    shape = (max(1, round(rows)), width)
    if not sizes.gated:
        return gelu, [_leaf(shape, sizes, device)]
    return lambda gate, up: silu(gate) * up, [_leaf(shape, sizes, device) for _ in range(2)]


def _routing(sizes: Sizes, device: str) -> Pass:
    assert sizes.experts is not None
    scores = _leaf((sizes.tokens // sizes.shards, sizes.experts.num_experts), sizes, device)
    count = sizes.experts.per_token
    return lambda x: torch.softmax(x, -1, dtype=torch.float32).topk(count, -1).values, [scores]


def _permute(sizes: Sizes, device: str) -> Pass:
    """A copy of every token for each of its experts, and the sum of the copies."""
    assert sizes.experts is not None
    tokens = sizes.tokens // sizes.shards
    copies = torch.randperm(tokens * sizes.experts.per_token, device=device) % tokens
    into = copies[:, None].expand(-1, sizes.hidden)
    x = _leaf((tokens, sizes.hidden), sizes, device)
    return lambda x: torch.zeros_like(x).scatter_add(0, into, x[copies]), [x]


def _loss(sizes: Sizes, device: str) -> Pass:
    logits = _leaf((sizes.tokens, sizes.vocab), sizes, device)
    labels = torch.randint(0, sizes.vocab, (sizes.tokens,), device=device)
    return cross_entropy, [logits, labels]


def _hidden(sizes: Sizes, device: str) -> Tensor:
    return _leaf((sizes.batch, sizes.sequence // sizes.shards, sizes.hidden), sizes, device)


def _leaf(shape: tuple[int, ...], sizes: Sizes, device: str) -> Tensor:
    return torch.randn(shape, dtype=DTYPES[sizes.dtype], device=device, requires_grad=True)


PASSES: dict[str, Callable[[Sizes, str], Pass]] = {
    "norm": _norm, "rope": _rope, "residual": _residual, "activation": _activation, "routing": _routing,
    "permute": _permute, "loss": _loss,
}  # fmt: skip
