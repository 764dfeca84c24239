"""Layers of Megatron-core in place of our own: its transformer layer, with Transformer Engine's modules where they are.

Its attention core runs on CUDA alone; on a CPU torch's stands in for it.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import megatron.core
import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.models.gpt.gpt_layer_specs import (
    get_gpt_layer_local_spec,
    get_gpt_layer_with_transformer_engine_spec,
)
from megatron.core.transformer.spec_utils import build_module
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention, silu

from windtunnel.measure.torch.framework_layers import timed
from windtunnel.measure.torch.kernels import Unit
from windtunnel.measure.torch.sharded import join
from windtunnel.measure.torch.units import DTYPES
from windtunnel.ops.sizes import Sizes

ENGINE = find_spec("transformer_engine") is not None
VERSION = f"megatron-core {megatron.core.__version__}{' with transformer-engine' if ENGINE else ''}"
THETA = 10_000.0


class TransformerLayer(nn.Module):
    """A Megatron-core layer of the sizes one rank holds, at tensor-parallel size 1.

    Its tokens come first; the copy of its result back to ours is the one pass it does not make in its own model.
    """

    def __init__(self, sizes: Sizes, device: str) -> None:
        super().__init__()
        _alone(device)
        engine = ENGINE and device != "cpu"
        config = _config(sizes, fused=device != "cpu")
        if engine:
            spec = get_gpt_layer_with_transformer_engine_spec()
        else:
            spec = get_gpt_layer_local_spec(normalization="RMSNorm")
        if device == "cpu":
            spec.submodules.self_attention.submodules.core_attention = _Core
        self.layer = build_module(spec, config=config, layer_number=1)
        turns = torch.arange(0, sizes.head_dim, 2) / sizes.head_dim
        angles = torch.outer(torch.arange(sizes.sequence), THETA**-turns)
        self.register_buffer("angles", torch.cat((angles, angles), -1)[:, None, None], persistent=False)
        causal = torch.ones(1, 1, sizes.sequence, sizes.sequence, dtype=torch.bool).triu(1)
        self.register_buffer("mask", None if engine else causal, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        mask = dict(self.named_buffers()).get("mask")
        out = self.layer(x.transpose(0, 1), attention_mask=mask, rotary_pos_emb=self.get_buffer("angles").float())
        hidden: Tensor = out[0] if isinstance(out, tuple) else out
        return hidden.transpose(0, 1).clone()


def _config(sizes: Sizes, *, fused: bool) -> Any:
    dtype = DTYPES[sizes.dtype]
    return TransformerConfig(
        num_layers=1,
        hidden_size=sizes.hidden,
        num_attention_heads=sizes.heads,
        num_query_groups=sizes.kv_heads,
        kv_channels=sizes.head_dim,
        ffn_hidden_size=sizes.width,
        gated_linear_unit=True,
        activation_func=silu,
        add_bias_linear=False,
        normalization="RMSNorm",
        hidden_dropout=0.0,
        attention_dropout=0.0,
        params_dtype=dtype,
        bf16=dtype is torch.bfloat16,
        fp16=dtype is torch.float16,
        use_cpu_initialization=True,
        bias_activation_fusion=fused,
        bias_dropout_fusion=fused,
        masked_softmax_fusion=False,
        apply_rope_fusion=fused and ENGINE,
        persist_layer_norm=False,
    )


class _Core(nn.Module):
    """softmax(q · kᵀ) · v of [s, b, heads, d] by torch, which Megatron-core's own cannot do without CUDA."""

    def __init__(self, **_: Any) -> None:
        super().__init__()

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> Tensor:
        q, k, v = (x.permute(1, 2, 0, 3) for x in (query, key, value))
        mixed = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return mixed.permute(2, 0, 1, 3).flatten(2)


def _alone(device: str) -> None:
    """Megatron-core's groups for this process: all of one rank."""
    join(device)
    if dist.get_world_size() == 1 and not parallel_state.is_initialized():
        parallel_state.initialize_model_parallel()
        if device != "cpu":
            from megatron.core.tensor_parallel import model_parallel_cuda_manual_seed

            model_parallel_cuda_manual_seed(0)


def layer(device: str, sizes: Sizes, co_runners: int = 0, sharded: bool = False) -> Unit:
    """A unit as a kernel of the harness."""
    return timed(TransformerLayer, device, sizes, co_runners, sharded)
