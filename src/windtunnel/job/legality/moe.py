"""Experts over ranks, and what overlapping their exchange needs."""

from __future__ import annotations

from windtunnel.job.draft import Draft
from windtunnel.job.legality.violation import Violation
from windtunnel.job.legality.words import divisors, nearest, repair, values_of


def experts_ep(draft: Draft) -> Violation | None:
    ep, moe = draft.count("parallel.ep"), draft.model.moe
    values = values_of(draft.plan, "parallel.ep")
    if moe is None or not draft.model.is_moe:
        if ep == 1:
            return None
        message = f"ep = {ep} needs experts, and {draft.model.name} has none"
        fix = (repair(parallel__ep=1),)
        return Violation(rule="experts-ep", message=message, path="plan.parallel.ep", values=values, repairs=fix)
    if moe.num_experts % ep == 0:
        return None
    return Violation(
        rule="experts-ep",
        message=f"num_experts = {moe.num_experts} must be a multiple of ep = {ep}",
        path="plan.parallel.ep",
        values={"model.moe.num_experts": moe.num_experts, **values},
        repairs=tuple(repair(parallel__ep=d) for d in nearest(divisors(moe.num_experts), ep)),
    )


def etp_needs_experts(draft: Draft) -> Violation | None:
    etp = draft.count("parallel.etp")
    if etp == 1 or draft.model.is_moe:
        return None
    return Violation(
        rule="etp-needs-experts",
        message=f"etp = {etp} needs experts, and {draft.model.name} has none",
        path="plan.parallel.etp",
        values=values_of(draft.plan, "parallel.etp"),
        repairs=(repair(parallel__etp=1),),
    )


def moe_sp(draft: Draft) -> Violation | None:
    """Without sequence parallelism every tp rank would dispatch the same tokens; Megatron-core raises."""
    tp = draft.count("parallel.tp")
    on = draft.plan["parallel.sequence_parallel"]
    if not draft.software.is_megatron or not draft.model.is_moe or tp == 1 or on:
        return None
    return Violation(
        rule="moe-sp",
        message=f"training experts with tp = {tp} needs sequence_parallel",
        path="plan.parallel.sequence_parallel",
        values=values_of(draft.plan, "parallel.tp", "parallel.sequence_parallel"),
        repairs=(repair(parallel__sequence_parallel=True), repair(parallel__tp=1)),
    )


def expert_groups(draft: Draft) -> Violation | None:
    moe = draft.model.moe
    if moe is None or moe.num_groups is None:
        return None
    groups, used = moe.num_groups, moe.groups_per_token or moe.num_groups
    if moe.num_experts % groups == 0 and used <= groups:
        return None
    return Violation(
        rule="expert-groups",
        message=f"{groups} groups must divide {moe.num_experts} experts, and a token use at most all, not {used}",
        path="model.moe.num_groups",
        values={
            "model.moe.num_experts": moe.num_experts,
            "model.moe.num_groups": groups,
            "model.moe.groups_per_token": used,
        },
    )


def ep_overlap(draft: Draft) -> Violation | None:
    """Megatron-core's conditions for hiding the expert exchange behind another micro-batch."""
    if not draft.plan["overlap.ep_comm"] or not draft.software.is_megatron:
        return None
    pp, v = draft.count("parallel.pp"), draft.count("pipeline.virtual_stages")
    full = draft.plan["recompute.policy"] in ("full", "block", "uniform") and draft.plan["recompute.num_layers"] != 0
    overlapped = draft.plan["pipeline.schedule"] in ("1f1b_ep_overlap", "dualpipe", "dualpipe_v")
    needs = {
        "ep > 1": draft.count("parallel.ep") > 1,
        "bf16 or fp16 parameters": draft.plan["precision.params"] != "fp32",
        "no full recompute": not full,
        "virtual_stages > 1 where pp > 1": pp == 1 or v > 1 or overlapped,
    }
    missing = [need for need, met in needs.items() if not met]
    if not missing:
        return None
    return Violation(
        rule="ep-a2a-overlap",
        message=f"overlap.ep_comm needs {' and '.join(missing)}",
        path="plan.overlap.ep_comm",
        values=values_of(
            draft.plan,
            "overlap.ep_comm",
            "parallel.ep",
            "parallel.pp",
            "pipeline.virtual_stages",
            "recompute.policy",
            "precision.params",
        ),
        repairs=(repair(overlap__ep_comm=False, overlap__delay_wgrad=False),),
    )


def delay_wgrad(draft: Draft) -> Violation | None:
    on, needed = draft.plan["overlap.delay_wgrad"], draft.plan["overlap.ep_comm"]
    if not draft.software.is_megatron or not on or needed:
        return None
    return Violation(
        rule="delay-wgrad",
        message="overlap.delay_wgrad needs overlap.ep_comm",
        path="plan.overlap.delay_wgrad",
        values=values_of(draft.plan, "overlap.delay_wgrad", "overlap.ep_comm"),
        repairs=(repair(overlap__delay_wgrad=False),),
    )


RULES = (experts_ep, etp_needs_experts, moe_sp, expert_groups, ep_overlap, delay_wgrad)
