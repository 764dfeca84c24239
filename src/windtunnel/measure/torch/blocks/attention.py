"""Softmax attention with query, key and value heads: separate projections, rotary embedding, fused core."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from windtunnel.measure.torch.blocks.norm import RMSNorm, norm
from windtunnel.measure.torch.blocks.recompute import again
from windtunnel.ops.sizes import Sizes


def rotary_tables(sequence: int, width: int, device: torch.device | None = None) -> tuple[Tensor, Tensor]:
    """Cosines and sines [s, width / 2] of the rotary embedding, base 10,000."""
    rates = 10000 ** (-torch.arange(0, width, 2, device=device, dtype=torch.float32) / width)
    angles = torch.outer(torch.arange(sequence, device=device, dtype=torch.float32), rates)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotate the halves of each head of x [b, s, heads, d]; linear, so only the tables wait for backward."""
    first, second = x.chunk(2, -1)
    c, s = cosine[:, None].to(x.dtype), sine[:, None].to(x.dtype)
    return torch.cat((first * c - second * s, second * c + first * s), -1)


def core(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention of [b, heads, s, d]; keeps q, k, v, the output and its log-sum-exp."""
    return scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])


class Attention(nn.Module):
    """MHA, GQA or MQA on the tokens [b, s, h] of a region, with norms of queries and keys and a gate of the output
    where the model has them."""

    def __init__(self, sizes: Sizes, recompute: frozenset[str]) -> None:
        super().__init__()
        h, d = sizes.hidden, sizes.head_dim
        self.heads, self.kv_heads, self.head_dim = sizes.heads, sizes.kv_heads, d
        self.query = nn.Linear(h, sizes.heads * d, bias=False)
        self.key = nn.Linear(h, sizes.kv_heads * d, bias=False)
        self.value = nn.Linear(h, sizes.kv_heads * d, bias=False)
        self.output = nn.Linear(sizes.heads * d, h, bias=False)
        self.gate = nn.Linear(h, sizes.heads * d, bias=False) if sizes.output_gate else None
        self.norms = nn.ModuleList(_head_norm(sizes, heads) for heads in (sizes.heads, sizes.kv_heads) if sizes.qk_norm)
        self._whole = sizes.qk_norm == "full"
        self.rope = sizes.rope
        self._again = "core_attn" in recompute
        cosine, sine = rotary_tables(sizes.sequence, d)
        self.register_buffer("cosine", cosine, persistent=False)
        self.register_buffer("sine", sine, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        b, s, _ = x.shape
        q = self.query(x).view(b, s, self.heads, self.head_dim)
        k = self.key(x).view(b, s, self.kv_heads, self.head_dim)
        v = self.value(x).view(b, s, self.kv_heads, self.head_dim)
        if self.norms:
            q, k = (self._normal(norm, y) for norm, y in zip(self.norms, (q, k), strict=True))
        if self.rope:
            cosine, sine = self.get_buffer("cosine"), self.get_buffer("sine")
            q, k = rotate(q, cosine, sine), rotate(k, cosine, sine)
        mixed: Tensor = again(core, q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), when=self._again)
        out = mixed.transpose(1, 2).reshape(b, s, -1)
        projected: Tensor = self.output(out if self.gate is None else out * torch.sigmoid(self.gate(x)))
        return projected

    def _normal(self, norm: nn.Module, heads: Tensor) -> Tensor:
        """Heads [b, s, heads, d] normed each, or all of a token together."""
        normal: Tensor = norm(heads.flatten(2) if self._whole else heads)
        return normal.view_as(heads)


def _head_norm(sizes: Sizes, heads: int) -> nn.Module:
    if sizes.qk_norm == "weightless":
        return RMSNorm(sizes.head_dim, fixed=True)
    return norm(sizes.norm, sizes.head_dim * (heads if sizes.qk_norm == "full" else 1))
