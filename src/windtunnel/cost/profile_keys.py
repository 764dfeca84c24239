"""Names of what can be timed: ops, whole units, collectives and the optimizer, at the sizes one rank executes."""

from __future__ import annotations

from windtunnel.cost.profile import CALIBRATION, Key, Pass, key
from windtunnel.dtypes import activation
from windtunnel.job.job import Job
from windtunnel.ops.op import Attention, Gemm, GroupedGemm, Op, Scan, Stream
from windtunnel.ops.sizes import Sizes

PASSES: dict[str, Pass] = {"F": "forward", "B": "grad_input", "W": "grad_weight"}


def op_key(op: Op) -> Key | None:
    """The key of a compute op; None for what runs on the network. A stream is named by its kernel and bytes moved."""
    phase = PASSES[op.phase]
    match op:
        case Gemm():
            return key("gemm", phase, op.compute, {"m": op.m, "n": op.n, "k": op.k})
        case GroupedGemm():
            sizes = {"groups": op.groups, "rows": op.m, "n": op.n, "k": op.k}
            return key("grouped_gemm", phase, op.compute, sizes)
        case Attention():
            return key("attention", phase, "fp8" if op.fp8 else "half", _attention_sizes(op))
        case Stream():
            return key(f"stream/{op.name}", phase, "any", {"bytes": op.bytes_moved})
        case Scan():
            return key("scan", phase, "any", {"flops": op.scan_flops, "bytes": op.bytes_moved})
    return None


def _attention_sizes(op: Attention) -> dict[str, float]:
    return {
        "batch": op.batch,
        "heads": op.heads,
        "sequence": op.sequence,
        "qk_dim": op.qk_dim,
        "v_dim": op.v_dim,
        "context": op.context,
        "window": op.window or op.sequence,
        "fused": float(op.fused),
    }


BESIDE = "beside"
"""The size that counts co-runners: copies of the unit that other ranks of the host execute at the same time."""


SHARDED = "sharded"
"""The size that tells a unit whose parameters are gathered before use and whose gradients are scattered after it."""


def unit_key(
    sizes: Sizes, phase: Pass, beside: float = 0.0, *, sharded: bool = False, again: frozenset[str] = frozenset()
) -> Key:
    """The key of a whole unit without its collectives: a layer, the embedding, or head and loss.

    ``sharded``: with what the framework does round the collectives of sharded parameters, in a group of one rank.
    ``again``: with what its backward executes again.
    """
    shape: dict[str, float] = {"batch": sizes.batch, "sequence": sizes.sequence, "hidden": sizes.hidden}
    shape |= {"shards": sizes.shards, BESIDE: beside} | ({SHARDED: 1.0} if sharded else {})
    words = ["layer" if sizes.kind == "layer" else sizes.kind, sizes.norm]
    if sizes.kind != "layer":
        # Ranks that hold a part of the vocabulary each look up and sum in other steps than one that holds it all.
        words += ["divided"] if sizes.tp > 1 else []
        shape["vocab"] = sizes.vocab
        return key("/".join(words), phase, sizes.dtype, shape)
    words += [sizes.mixer, sizes.feed_forward, "gated" if sizes.gated else "plain"]
    words += ["mtp"] if sizes.mtp else []
    words += [f"again:{'+'.join(sorted(again))}"] if again else []
    if sizes.mixer == "attention":
        shape |= {"heads": sizes.heads, "kv_heads": sizes.kv_heads, "head_dim": sizes.head_dim}
        words += [f"qk_norm:{sizes.qk_norm}"] if sizes.qk_norm else []
        words += ["output_gate"] if sizes.output_gate else []
    if sizes.mla is not None:
        words.append("mla")
        shape |= {"q_rank": sizes.mla.q_lora_rank or 0, "kv_rank": sizes.mla.kv_lora_rank}
        shape |= {"nope_dim": sizes.mla.qk_nope_head_dim, "rope_dim": sizes.mla.qk_rope_head_dim}
        shape["v_dim"] = sizes.mla.v_head_dim
    if sizes.linear is not None:
        words.append(sizes.linear.kind)
        shape |= {"linear_heads": sizes.linear.num_heads, "linear_dim": sizes.linear.head_dim}
        shape |= {"state_dim": sizes.linear.state_dim, "groups": sizes.linear.num_groups}
    if sizes.experts is not None:
        experts = sizes.experts
        shape |= {"experts": experts.num_experts, "local_experts": experts.local, "per_token": experts.per_token}
        shape |= {"expert_width": experts.width, "shared_width": experts.shared_width}
        shape |= {"load": experts.load} if experts.load != 1.0 else {}
    else:
        shape["width"] = sizes.width
    return key("/".join(words), phase, sizes.dtype, shape)


def gathered_by_unit(job: Job) -> bool:
    """Whether a rank gathers the parameters of each unit before it and scatters their gradients after it."""
    return job.plan.sharding.shards_parameters and job.plan.parallel.pp == 1


def collective_key(kind: str, ranks: int, inside: int, size: float) -> Key:
    """The key of a collective of ``size`` bytes, full and gathered, over ``ranks``, ``inside`` of them in a domain."""
    return key(f"collective/{kind}", "none", "any", {"ranks": ranks, "inside": inside, "bytes": size})


def optimizer_key(job: Job, parameters: float) -> Key:
    """The key of an optimizer step over ``parameters`` local parameters."""
    name = f"optimizer/{job.plan.optimizer}"
    return key(name, "step", activation(job.plan.precision.compute), {"parameters": parameters})


LAYER_OVER_OPS = ("layer_over_ops/forward", "layer_over_ops/backward")
"""Names of the ratios of whole layers to the sums of their ops."""


def calibration_key(name: str) -> Key:
    """The key of a dimensionless figure of the machine, such as what traffic beside compute costs."""
    return key(f"{CALIBRATION}{name}", "none", "any", {})
