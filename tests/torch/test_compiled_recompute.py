"""What a compiled layer saves under torchtitan's selective policy, counted as torch's partitioner decides it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch.nn")  # a folder of tests named torch would pass for the package itself
torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch._functorch.partitioners import get_default_op_list  # noqa: E402
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper  # noqa: E402
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts  # noqa: E402

from windtunnel.catalog.jobs import job_from_mapping  # noqa: E402
from windtunnel.ops.chunk import lower_unit, units  # noqa: E402
from windtunnel.ops.layer import kept_bytes  # noqa: E402

B, S, H, HEADS, GROUPS, D, FF = 2, 128, 256, 4, 2, 64, 704
AT_ONCE = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
SAVED = {op.default for op in get_default_op_list().compute_intensive_ops} | {AT_ONCE}


class Layer(nn.Module):
    """A Llama layer whose query, key and value are one product, as torchtitan builds it since 2026-04."""

    def __init__(self) -> None:
        super().__init__()
        self.wqkv = nn.Linear(H, (HEADS + 2 * GROUPS) * D, bias=False)
        self.wo = nn.Linear(HEADS * D, H, bias=False)
        self.w1, self.w3 = nn.Linear(H, FF, bias=False), nn.Linear(H, FF, bias=False)
        self.w2 = nn.Linear(FF, H, bias=False)
        self.attention_norm, self.ffn_norm = nn.RMSNorm(H), nn.RMSNorm(H)

    def forward(self, x: Any, cos: Any, sin: Any) -> Any:
        q, k, v = self.wqkv(self.attention_norm(x)).split([HEADS * D, GROUPS * D, GROUPS * D], -1)
        q, k, v = (part.view(B, S, -1, D) for part in (q, k, v))
        q, k = (z * cos + torch.cat([-z[..., D // 2 :], z[..., : D // 2]], -1) * sin for z in (q, k))
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.wo(mixed.transpose(1, 2).reshape(B, S, -1))
        z = self.ffn_norm(x)
        return x + self.w2(F.silu(self.w1(z)) * self.w3(z))


def every_second_product() -> Callable[..., CheckpointPolicy]:
    products = {False: 0, True: 0}

    def policy(ctx: Any, op: Any, *_: Any, **__: Any) -> CheckpointPolicy:
        if op == torch.ops.aten.mm.default:
            products[ctx.is_recompute] += 1
            if products[ctx.is_recompute] % 2 == 0:
                return CheckpointPolicy.PREFER_RECOMPUTE
        return CheckpointPolicy.MUST_SAVE if op in SAVED else CheckpointPolicy.PREFER_RECOMPUTE

    return policy


def test_a_compiled_layer_with_one_projection() -> None:
    """Input, projection, attention output with its log-sum-exp, and gate: not the result of the down projection,
    which only a sum reads, nor what its neighbours give."""
    layer = Layer().to(torch.bfloat16)
    weights = {parameter.untyped_storage()._cdata for parameter in layer.parameters()}
    wrapped = checkpoint_wrapper(
        layer,
        context_fn=lambda: create_selective_checkpoint_contexts(every_second_product()),
        preserve_rng_state=False,
        early_stop=False,
    )
    compiled = torch.compile(wrapped, backend="aot_eager_decomp_partition", fullgraph=True)
    x = torch.randn(B, S, H, dtype=torch.bfloat16, requires_grad=True)
    tables = [torch.randn(1, S, 1, D, dtype=torch.bfloat16) for _ in range(2)]
    ignored = weights | {table.untyped_storage()._cdata for table in tables}
    seen: dict[int, Any] = {}

    def pack(tensor: Any) -> Any:
        if tensor.untyped_storage()._cdata not in ignored:
            seen[tensor.untyped_storage()._cdata] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        compiled(x, *tables)
    counted = sum(tensor.untyped_storage().nbytes() for tensor in seen.values())

    job = job_from_mapping(
        {
            "model": {
                "name": "layer", "num_layers": 1, "hidden_size": H, "num_attention_heads": HEADS,
                "num_key_value_heads": GROUPS, "head_dim": D, "intermediate_size": FF, "vocab_size": 1024,
            },
            "cluster": {"accelerator": "h100-sxm-80gb", "num_accelerators": 1},
            "software": {"framework": "torchtitan", "date": "2026-06", "compiled": True},
            "plan": {
                "batch": {"micro_batch_size": B, "global_batch_size": B, "sequence_length": S},
                "recompute": {"policy": "per_op"},
            },
        }
    )  # fmt: skip
    unit = next(unit for unit, _ in units(job, job.plan.pipeline.layout[0]) if unit.layer is not None)
    assert counted == sum(kept_bytes(lower_unit(job, unit), unit.recompute))
