"""Norms as fused kernels keep them: the input and one or two fp32 statistics a token, whatever the device."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

EPSILON = 1e-5


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPSILON)
        ctx.save_for_backward(x, weight, scale)
        return (wide * scale).to(x.dtype) * weight

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        x, weight, scale = ctx.saved_tensors
        (gradient,) = gradients
        normal = x.float() * scale
        inner = gradient.float() * weight.float()
        into = scale * (inner - normal * (inner * normal).mean(-1, keepdim=True))
        return into.to(x.dtype), (gradient.float() * normal).flatten(0, -2).sum(0).to(weight.dtype)


class _LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        wide = x.float()
        mean = wide.mean(-1, keepdim=True)
        scale = torch.rsqrt(wide.var(-1, keepdim=True, correction=0) + EPSILON)
        ctx.save_for_backward(x, weight, mean, scale)
        return ((wide - mean) * scale).to(x.dtype) * weight + bias

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, weight, mean, scale = ctx.saved_tensors
        (gradient,) = gradients
        normal = (x.float() - mean) * scale
        inner = gradient.float() * weight.float()
        into = scale * (inner - inner.mean(-1, keepdim=True) - normal * (inner * normal).mean(-1, keepdim=True))
        wide = gradient.float().flatten(0, -2)
        of_weight = (wide * normal.flatten(0, -2)).sum(0)
        return into.to(x.dtype), of_weight.to(weight.dtype), wide.sum(0).to(weight.dtype)


class RMSNorm(nn.Module):
    """x / rms(x) · weight, statistics in fp32; ``fixed``: the weight is 1 and no parameter."""

    def __init__(self, width: int, *, fixed: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width), requires_grad=not fixed)

    def forward(self, x: Tensor) -> Tensor:
        normal: Tensor = _RMSNorm.apply(x, self.weight)
        return normal


class LayerNorm(nn.Module):
    """(x − mean) / deviation · weight + bias, statistics in fp32."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        normal: Tensor = _LayerNorm.apply(x, self.weight, self.bias)
        return normal


def norm(kind: str, width: int) -> nn.Module:
    """The norm called ``kind``: ``rmsnorm`` or ``layernorm``."""
    return RMSNorm(width) if kind == "rmsnorm" else LayerNorm(width)
