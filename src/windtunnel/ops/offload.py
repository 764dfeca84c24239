"""Kept tensors that wait in host memory: those of whole layers, or the inputs of named modules."""

from __future__ import annotations

from collections.abc import Iterator

from windtunnel.job.plan import Offload
from windtunnel.ops.op import Kept, Op

INPUT_OF: dict[tuple[str, str], str] = {
    ("attention_norm", "norm_input"): "attn_norm",
    ("attention_norm", "norm_output"): "qkv_linear",
    ("qkv", "qkv"): "core_attn",
    ("qkv", "rotated_qk"): "core_attn",
    ("rope", "q"): "core_attn",
    ("rope", "k"): "core_attn",
    ("rope", "v"): "core_attn",
    ("core_attention", "attention_out"): "attn_proj",
    ("mlp_norm", "norm_input"): "mlp_norm",
    ("permute", "expert_input"): "expert_fc1",
    ("expert_activation", "expert_up"): "moe_act",
}
"""Op and kept tensor to the module whose input it is, as ``--offload-modules`` of Megatron-core names them."""


def offloaded_bytes(ops: tuple[Op, ...], recompute: frozenset[str], offload: Offload) -> tuple[float, float]:
    """Bytes of one layer and micro-batch that leave the device, split into (activations, dispatcher)."""
    activations = dispatcher = 0.0
    for kept in _leaving(ops, recompute, offload.modules):
        if kept.of == "dispatcher":
            dispatcher += kept.bytes
        else:
            activations += kept.bytes
    return activations * offload.activations, dispatcher * offload.activations


def _leaving(ops: tuple[Op, ...], recompute: frozenset[str], modules: frozenset[str]) -> Iterator[Kept]:
    for op in ops:
        for kept in op.keeps:
            named = not modules or INPUT_OF.get((op.name.partition(":")[0], kept.name)) in modules
            if named and kept.survives(recompute):
                yield kept
