"""Layers of torchtitan in place of our own: Llama 3's block with torch's scaled dot-product attention."""

from __future__ import annotations

from importlib.metadata import version

import torch
from torch import Tensor, nn
from torchtitan.models.common import ComplexRoPE, RMSNorm
from torchtitan.models.common.attention import ScaledDotProductAttention
from torchtitan.models.common.config_utils import make_ffn_config, make_gqa_config
from torchtitan.models.llama3 import Llama3TransformerBlock

from windtunnel.measure.torch.framework_layers import timed
from windtunnel.measure.torch.kernels import Unit
from windtunnel.ops.sizes import Sizes

VERSION = f"torchtitan {version('torchtitan')}"
ONES, NORMAL = {"weight": nn.init.ones_}, {"weight": nn.init.normal_}


class Block(nn.Module):
    """A Llama 3 block of the sizes one rank holds."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        norms = [RMSNorm.Config(normalized_shape=sizes.hidden, param_init=ONES) for _ in range(2)]
        attention = make_gqa_config(
            dim=sizes.hidden,
            n_heads=sizes.heads,
            n_kv_heads=sizes.kv_heads,
            head_dim=sizes.head_dim,
            wqkv_param_init=NORMAL,
            wo_param_init=NORMAL,
            inner_attention=ScaledDotProductAttention.Config(),
            fuse_qkv=True,
            rope=ComplexRoPE.Config(dim=sizes.head_dim, max_seq_len=sizes.sequence, theta=500_000),
        )
        feed_forward = make_ffn_config(
            dim=sizes.hidden, hidden_dim=sizes.width, w1_param_init=NORMAL, w2w3_param_init=NORMAL
        )
        config = Llama3TransformerBlock.Config(
            attention_norm=norms[0], ffn_norm=norms[1], attention=attention, feed_forward=feed_forward
        )
        self.block = config.build()
        self.register_buffer("positions", torch.arange(sizes.sequence).repeat(sizes.batch, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.block(x, None, self.get_buffer("positions"))
        return out


def layer(device: str, sizes: Sizes, co_runners: int = 0, sharded: bool = False) -> Unit:
    """A unit as a kernel of the harness."""
    return timed(lambda sizes, _: Block(sizes), device, sizes, co_runners, sharded)
