"""Multi-head latent attention, un-absorbed as training executes it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from windtunnel.measure.torch.blocks.attention import core, rotary_tables, rotate
from windtunnel.measure.torch.blocks.norm import RMSNorm
from windtunnel.measure.torch.blocks.recompute import again, discard
from windtunnel.ops.sizes import Sizes


class LatentAttention(nn.Module):
    """Low-rank query and key-value paths; ``mla_up_proj`` re-executes the up-projections and what follows them."""

    def __init__(self, sizes: Sizes, recompute: frozenset[str]) -> None:
        super().__init__()
        assert sizes.mla is not None
        mla, h, heads = sizes.mla, sizes.hidden, sizes.heads
        self.mla, self.heads = mla, heads
        rank = mla.q_lora_rank
        self.query_down = nn.Linear(h, rank, bias=False) if rank else nn.Identity()
        self.query_norm = RMSNorm(rank) if rank else nn.Identity()
        self.query_up = nn.Linear(rank or h, heads * mla.qk_head_dim, bias=False)
        self.kv_down = nn.Linear(h, mla.kv_lora_rank + mla.qk_rope_head_dim, bias=False)
        self.kv_norm = RMSNorm(mla.kv_lora_rank)
        self.kv_up = nn.Linear(mla.kv_lora_rank, heads * (mla.qk_nope_head_dim + mla.v_head_dim), bias=False)
        self.output = nn.Linear(heads * mla.v_head_dim, h, bias=False)
        self._again_up, self._again_core = "mla_up_proj" in recompute, "core_attn" in recompute
        cosine, sine = rotary_tables(sizes.sequence, mla.qk_rope_head_dim)
        self.register_buffer("cosine", cosine, persistent=False)
        self.register_buffer("sine", sine, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        b, s, _ = x.shape
        mla = self.mla
        query = self.query_norm(self.query_down(x))
        latent, position = self.kv_down(x).split((mla.kv_lora_rank, mla.qk_rope_head_dim), -1)
        normal = self.kv_norm(latent)
        q, k, v = self._up(query, normal, position)
        mixed: Tensor = again(core, q, k, v, when=self._again_core)
        if self._again_up:
            discard((q, k, v), mixed, lambda: self._up(query, normal, position))
        projected: Tensor = self.output(mixed.transpose(1, 2).reshape(b, s, -1))
        return projected

    def _up(self, query: Tensor, latent: Tensor, position: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values [b, heads, s, d] of the latents."""
        b, s, _ = latent.shape
        mla, heads = self.mla, self.heads
        cosine, sine = self.get_buffer("cosine"), self.get_buffer("sine")
        q = self.query_up(query).view(b, s, heads, mla.qk_head_dim)
        still, turned = q.split((mla.qk_nope_head_dim, mla.qk_rope_head_dim), -1)
        q = torch.cat((still, rotate(turned, cosine, sine)), -1)
        kv = self.kv_up(latent).view(b, s, heads, mla.qk_nope_head_dim + mla.v_head_dim)
        still, v = kv.split((mla.qk_nope_head_dim, mla.v_head_dim), -1)
        shared = rotate(position.unsqueeze(2), cosine, sine).expand(-1, -1, heads, -1)
        k = torch.cat((still, shared), -1)
        return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
