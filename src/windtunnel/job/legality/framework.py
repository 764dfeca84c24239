"""What frameworks and accelerators do not combine."""

from __future__ import annotations

from windtunnel import dtypes
from windtunnel.job.draft import Draft
from windtunnel.job.legality.violation import Repair, Violation
from windtunnel.job.legality.words import repair, shards_optimizer, values_of

_BLOCK_SCALED = frozenset({"mxfp8", "nvfp4", "mxfp4"})
_ATTENTION_OF = {"aiter": "amd", "splash": "google", "flash3": "nvidia"}
_RECOMPUTES_LAYERS = frozenset({"full", "block", "uniform"})


def tp_overlap(draft: Draft) -> Violation | None:
    if not draft.software.is_megatron or not draft.plan["overlap.tp_comm"] or draft.plan["parallel.sequence_parallel"]:
        return None
    split = draft.count("parallel.tp") > 1
    return Violation(
        rule="tp-overlap",
        message="overlap.tp_comm needs sequence_parallel" + ("" if split else ", which is off at tp = 1"),
        path="plan.overlap.tp_comm",
        values=values_of(draft.plan, "overlap.tp_comm", "parallel.sequence_parallel", "parallel.tp"),
        repairs=(
            *((repair(parallel__sequence_parallel=True),) if split else ()),
            repair(overlap__tp_comm=False),
        ),
        severity="error" if split else "warning",
    )


def fsdp2(draft: Draft) -> Violation | None:
    """Megatron-LM's checks of ``--use-torch-fsdp2``."""
    plan = draft.plan
    if not draft.software.is_megatron or plan["sharding.implementation"] != "fsdp2":
        return None
    broken: dict[str, tuple[str, object, Repair]] = {
        "ep = 1": ("parallel.ep", draft.count("parallel.ep") > 1, repair(parallel__ep=1)),
        "strategy fsdp": (
            "sharding.strategy",
            plan["sharding.strategy"] not in ("zero3", "fsdp", "hsdp"),
            repair(sharding__strategy="fsdp"),
        ),
        "no fp16": ("precision.compute", plan["precision.compute"] == "fp16", repair(precision__compute="bf16")),
        "untied embeddings": (
            "sharding.implementation",
            draft.model.tie_word_embeddings,
            Repair({"plan.sharding.implementation": None}),
        ),
    }
    needs = {need: (path, fix) for need, (path, is_broken, fix) in broken.items() if is_broken}
    if not needs:
        return None
    changes = {path: value for _, fix in needs.values() for path, value in fix.changes.items()}
    return Violation(
        rule="fsdp2",
        message=f"torch FSDP2 in {draft.software.framework} needs {' and '.join(needs)}",
        path=f"plan.{next(iter(needs.values()))[0]}",
        values={
            "model.tie_word_embeddings": draft.model.tie_word_embeddings,
            **values_of(plan, "sharding.implementation", "sharding.strategy", "parallel.ep", "precision.compute"),
        },
        repairs=(Repair(changes),),
    )


def overlap_param_gather(draft: Draft) -> Violation | None:
    if not draft.software.is_megatron or not draft.plan["overlap.param_gather"] or shards_optimizer(draft):
        return None
    return Violation(
        rule="overlap-param-gather",
        message="overlap.param_gather needs a sharded optimizer: nothing is gathered under ddp",
        path="plan.overlap.param_gather",
        values=values_of(draft.plan, "overlap.param_gather", "sharding.strategy"),
        repairs=(repair(sharding__strategy="zero1"), repair(overlap__param_gather=False)),
    )


def fp8_param_gather(draft: Draft) -> Violation | None:
    if not draft.software.is_megatron or draft.plan["precision.params"] != "fp8" or shards_optimizer(draft):
        return None
    return Violation(
        rule="fp8-param-gather",
        message="fp8 parameters need a sharded optimizer",
        path="plan.precision.params",
        values=values_of(draft.plan, "precision.params", "sharding.strategy"),
        repairs=(repair(sharding__strategy="zero1"), repair(precision__params="bf16")),
    )


def full_recompute_graphs(draft: Draft) -> Violation | None:
    whole_layers = draft.plan["recompute.policy"] in _RECOMPUTES_LAYERS and draft.plan["recompute.num_layers"] != 0
    if not draft.software.is_megatron or draft.software.cuda_graphs != "partial" or not whole_layers:
        return None
    return Violation(
        rule="full-recompute-graphs",
        message="recomputing whole layers works with full-iteration CUDA graphs only, not with partial ones",
        path="plan.recompute.policy",
        values={"software.cuda_graphs": draft.software.cuda_graphs, **values_of(draft.plan, "recompute.policy")},
        repairs=(repair(recompute__policy="selective"), repair(recompute__policy="none")),
    )


def selective_method(draft: Draft) -> Violation | None:
    counted = draft.plan["recompute.num_layers"] is not None or draft.plan["recompute.layers"] is not None
    if not draft.software.is_megatron or draft.plan["recompute.policy"] != "selective" or not counted:
        return None
    return Violation(
        rule="selective-method",
        message="selective recompute covers every layer's core attention and takes no number of layers",
        path="plan.recompute.num_layers",
        values=values_of(draft.plan, "recompute.policy", "recompute.num_layers", "recompute.layers"),
        repairs=(Repair({"plan.recompute.num_layers": None, "plan.recompute.layers": None}),),
    )


def compute_peak(draft: Draft) -> Violation | None:
    """A recipe the accelerator has no matrix units for."""
    compute, accelerator = str(draft.plan["precision.compute"]), draft.cluster.accelerator
    dtype = dtypes.operand(compute)
    peaks = accelerator.peaks
    # Block scales are applied inside the matrix units from the generation on that also multiplies fp4.
    lacks_scales = compute in _BLOCK_SCALED and peaks.fp4 is None
    if getattr(peaks, dtype) is not None and not lacks_scales:
        return None
    what = "block-scaled matrix units" if getattr(peaks, dtype) is not None else f"a peak for {dtype}"
    simpler = ("fp8_tensorwise", "bf16", "fp16")
    fallback = next((name for name in simpler if getattr(peaks, dtypes.operand(name)) is not None), "fp32")
    return Violation(
        rule="compute-peak",
        message=f"{compute} needs {what}, which {accelerator.name} does not have",
        path="plan.precision.compute",
        values={"cluster.accelerator": accelerator.name, **values_of(draft.plan, "precision.compute")},
        repairs=(repair(precision__compute=fallback),),
    )


def attention_vendor(draft: Draft) -> Violation | None:
    backend, vendor = draft.software.attention, draft.cluster.accelerator.vendor
    wanted = _ATTENTION_OF.get(backend)
    if wanted is None or wanted == vendor:
        return None
    return Violation(
        rule="attention-vendor",
        message=f"attention {backend} runs on {wanted} accelerators, not on {draft.cluster.accelerator.name}",
        path="software.attention",
        values={"software.attention": backend, "cluster.accelerator": draft.cluster.accelerator.name},
        repairs=(Repair({"software.attention": "auto"}),),
    )


def zero_pipeline(draft: Draft) -> Violation | None:
    """DeepSpeed's pipeline engine accumulates gradients locally and refuses to shard them."""
    strategy, pp = draft.plan["sharding.strategy"], draft.count("parallel.pp")
    if draft.software.framework != "deepspeed" or pp == 1 or strategy in ("ddp", "zero1"):
        return None
    return Violation(
        rule="zero-pipeline",
        message=f"DeepSpeed pipelines (pp = {pp}) run with ddp or zero1, not with {strategy}",
        path="plan.sharding.strategy",
        values=values_of(draft.plan, "sharding.strategy", "parallel.pp"),
        repairs=(repair(sharding__strategy="zero1"), repair(parallel__pp=1)),
    )


def te_cross_entropy(draft: Draft) -> Violation | None:
    """Source: NVIDIA/Megatron-LM @168cb15d megatron/training/arguments.py, for want of stability."""
    loss = values_of(draft.plan, "loss.fused_cross_entropy", "loss.implementation")
    if draft.software.framework != "megatron-core" or draft.software.date < _TE_LOSS_REFUSED_SINCE:
        return None
    if not draft.plan["loss.fused_cross_entropy"] or draft.plan["loss.implementation"] != "te":
        return None
    return Violation(
        rule="te-cross-entropy",
        message=f"Megatron-LM refuses the cross-entropy of Transformer Engine since {_TE_LOSS_REFUSED_SINCE}",
        path="plan.loss.implementation",
        values={"software.date": draft.software.date, **loss},
        repairs=(repair(loss__implementation="native"), repair(loss__fused_cross_entropy=False)),
    )


_TE_LOSS_REFUSED_SINCE = "2026-06"

RULES = (
    tp_overlap, fsdp2, overlap_param_gather, fp8_param_gather, full_recompute_graphs, selective_method, compute_peak,
    attention_vendor, zero_pipeline, te_cross_entropy,
)  # fmt: skip
