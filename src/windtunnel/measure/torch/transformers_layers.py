"""Layers of Hugging Face transformers in place of our own: Llama's decoder layer, timed by the same kernel."""

from __future__ import annotations

import torch
import transformers
from torch import Tensor, nn
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

from windtunnel.measure.torch.framework_layers import timed
from windtunnel.measure.torch.kernels import Unit
from windtunnel.ops.sizes import Sizes

VERSION = f"transformers {transformers.__version__}"


class DecoderLayer(nn.Module):
    """A Llama decoder layer of the sizes one rank holds, its positions prepared as the model prepares them."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        config = transformers.LlamaConfig(
            hidden_size=sizes.hidden,
            intermediate_size=sizes.width,
            num_attention_heads=sizes.heads,
            num_key_value_heads=sizes.kv_heads,
            head_dim=sizes.head_dim,
            max_position_embeddings=sizes.sequence,
            attn_implementation="sdpa",
        )
        self.layer = LlamaDecoderLayer(config, layer_idx=0)
        self.rotary = LlamaRotaryEmbedding(config)
        self.register_buffer("positions", torch.arange(sizes.sequence)[None], persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        tables = self.rotary(x, self.get_buffer("positions"))
        found = self.layer(x, position_embeddings=tables)
        out: Tensor = found[0] if isinstance(found, tuple) else found
        return out


def layer(device: str, sizes: Sizes, co_runners: int = 0, sharded: bool = False) -> Unit:
    """A unit as a kernel of the harness."""
    return timed(lambda sizes, _: DecoderLayer(sizes), device, sizes, co_runners, sharded)
