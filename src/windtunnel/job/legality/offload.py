"""What may wait in host memory, as Megatron-core checks it."""

from __future__ import annotations

from windtunnel.job.draft import Draft
from windtunnel.job.legality.violation import Repair, Violation
from windtunnel.job.legality.words import repair, shards_optimizer, values_of

_INSIDE_EXPERTS = frozenset({"expert_fc1", "moe_act"})


def optimizer_offload(draft: Draft) -> Violation | None:
    if not draft.software.is_megatron or draft.plan["offload.optimizer"] == "none" or shards_optimizer(draft):
        return None
    return Violation(
        rule="optimizer-offload",
        message="optimizer states on the host need a sharded optimizer",
        path="plan.offload.optimizer",
        values=values_of(draft.plan, "offload.optimizer", "sharding.strategy"),
        repairs=(repair(sharding__strategy="zero1"), repair(offload__optimizer="none")),
    )


def act_offload(draft: Draft) -> Violation | None:
    """Megatron's layer-wise activation offload; offloading named modules has none of these limits.

    Source: NVIDIA/Megatron-LM megatron/core/transformer/transformer_config.py, since the offload came (@c59ac8b4,
    2023-12).
    """
    share, modules = draft.plan["offload.activations"], draft.plan["offload.modules"]
    if not draft.software.is_megatron or not share or modules:
        return None
    needs = {
        "pp = 1": draft.count("parallel.pp") == 1,
        "no recompute": not _recomputes(draft),
        "no CUDA graphs": draft.software.cuda_graphs == "none",
        "a share below 1": share != 1.0,
    }
    missing = [need for need, met in needs.items() if not met]
    if not missing:
        return None
    return Violation(
        rule="act-offload",
        message=f"offloading the activations of whole layers needs {' and '.join(missing)}",
        path="plan.offload.activations",
        values={
            "software.cuda_graphs": draft.software.cuda_graphs,
            **values_of(draft.plan, "offload.activations", "parallel.pp", "recompute.policy"),
        },
        repairs=(
            repair(offload__activations=0.0),
            *((repair(recompute__policy="none"),) if missing == ["no recompute"] else ()),
        ),
    )


def offload_modules(draft: Draft) -> Violation | None:
    """Source: NVIDIA/Megatron-LM @d98e8a64 megatron/core/transformer/transformer_config.py."""
    modules = _names(draft.plan["offload.modules"])
    if not draft.software.is_megatron or not modules:
        return None
    repeated = _names(draft.plan["recompute.modules"]) if draft.plan["recompute.policy"] == "modules" else frozenset()
    if "attn_proj" in modules and "core_attn" not in modules:
        message = "the input of attn_proj is what core_attn returns and its backward needs: offload both or neither"
        left = modules | {"core_attn"}
    elif "moe" in repeated and modules & _INSIDE_EXPERTS:
        message = "recomputing the whole moe leaves nothing of its experts to offload"
        left = modules - _INSIDE_EXPERTS
    else:
        return None
    return Violation(
        rule="offload-modules",
        message=message,
        path="plan.offload.modules",
        values=values_of(draft.plan, "offload.modules", "recompute.policy", "recompute.modules"),
        repairs=(Repair({"plan.offload.modules": tuple(sorted(left)) or None}),),
    )


def _names(modules: object) -> frozenset[str]:
    return frozenset(map(str, modules)) if isinstance(modules, (tuple, frozenset)) else frozenset()


def _recomputes(draft: Draft) -> bool:
    return draft.plan["recompute.policy"] != "none" and draft.plan["recompute.num_layers"] != 0


RULES = (optimizer_offload, act_offload, offload_modules)
