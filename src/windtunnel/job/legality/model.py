"""Widths, heads and vocabulary over tensor- and context-parallel ranks."""

from __future__ import annotations

from math import gcd

from windtunnel.job.draft import Draft
from windtunnel.job.legality.violation import Repair, Violation
from windtunnel.job.legality.words import divisors, repair, values_of
from windtunnel.job.vocabulary import padded_vocab

_TORCH_TENSOR_PARALLEL = frozenset({"torchtitan", "automodel"})


def _lower(path: str, degree: int, *sizes: int) -> tuple[Repair, ...]:
    """The largest smaller degree that divides all sizes."""
    fitting = [d for d in divisors(gcd(*sizes)) if d < degree]
    return tuple(Repair({f"plan.{path}": d}) for d in fitting[-1:])


def heads_tp(draft: Draft) -> Violation | None:
    heads, tp = draft.model.num_attention_heads, draft.count("parallel.tp")
    if heads % tp == 0:
        return None
    return Violation(
        rule="heads-tp",
        message=f"num_attention_heads = {heads} must be a multiple of tp = {tp}",
        path="plan.parallel.tp",
        values={"model.num_attention_heads": heads, **values_of(draft.plan, "parallel.tp")},
        repairs=_lower("parallel.tp", tp, heads),
    )


def gqa_tp(draft: Draft) -> Violation | None:
    """Megatron-core replicates key-value heads where tp is a multiple of them; torch tensor parallel cannot."""
    heads, tp = draft.model.num_key_value_heads, draft.count("parallel.tp")
    torch = draft.software.framework in _TORCH_TENSOR_PARALLEL
    if draft.model.mla is not None or heads % tp == 0 or (not torch and tp % heads == 0):
        return None
    relation = "a multiple" if torch else "a multiple or a divisor"
    smaller = [d for d in divisors(draft.model.num_attention_heads) if d < tp]
    fitting = [d for d in smaller if heads % d == 0 or (d % heads == 0 and not torch)]
    return Violation(
        rule="gqa-tp",
        message=f"num_key_value_heads = {heads} must be {relation} of tp = {tp} in {draft.software.framework}",
        path="plan.parallel.tp",
        values={"model.num_key_value_heads": heads, **values_of(draft.plan, "parallel.tp")},
        repairs=tuple(repair(parallel__tp=d) for d in fitting[-1:]),
    )


def widths_tp(draft: Draft) -> Violation | None:
    tp, model = draft.count("parallel.tp"), draft.model
    dense = {layer.intermediate_size for layer in model.layers if layer.feed_forward == "dense"}
    shared = {model.moe.shared_expert_intermediate_size} if model.moe else set()
    sizes = {"hidden_size": {model.hidden_size}, "intermediate_size": dense, "shared_expert_intermediate_size": shared}
    uneven = {f"model.{name}": size for name, each in sizes.items() for size in each if size % tp}
    if not uneven:
        return None
    found = ", ".join(f"{path.removeprefix('model.')} = {size}" for path, size in uneven.items())
    return Violation(
        rule="widths-tp",
        message=f"{found} must be a multiple of tp = {tp}",
        path="plan.parallel.tp",
        values={**uneven, **values_of(draft.plan, "parallel.tp")},
        repairs=_lower("parallel.tp", tp, model.num_attention_heads, *uneven.values()),
    )


def expert_width_etp(draft: Draft) -> Violation | None:
    etp, moe = draft.count("parallel.etp"), draft.model.moe
    if moe is None or moe.moe_intermediate_size % etp == 0:
        return None
    return Violation(
        rule="expert-width-etp",
        message=f"moe_intermediate_size = {moe.moe_intermediate_size} must be a multiple of etp = {etp}",
        path="plan.parallel.etp",
        values={"model.moe.moe_intermediate_size": moe.moe_intermediate_size, **values_of(draft.plan, "parallel.etp")},
        repairs=_lower("parallel.etp", etp, moe.moe_intermediate_size),
    )


def linear_heads_tp(draft: Draft) -> Violation | None:
    tp, linear = draft.count("parallel.tp"), draft.model.linear_attention
    if linear is None or (linear.num_heads % tp == 0 and linear.num_groups % tp == 0):
        return None
    return Violation(
        rule="linear-heads-tp",
        message=f"{linear.kind}: {linear.num_heads} heads, {linear.num_groups} groups must be multiples of tp = {tp}",
        path="plan.parallel.tp",
        values={
            "model.linear_attention.num_heads": linear.num_heads,
            "model.linear_attention.num_groups": linear.num_groups,
            **values_of(draft.plan, "parallel.tp"),
        },
        repairs=_lower("parallel.tp", tp, linear.num_heads, linear.num_groups, draft.model.num_attention_heads),
    )


def ulysses_heads(draft: Draft) -> Violation | None:
    """Head exchange splits the heads of a tensor-parallel rank over ``ulysses_size`` ranks, which cp must contain."""
    looked_at = ("context_parallel.ulysses_size", "parallel.cp", "parallel.tp")
    size, cp, tp = (draft.count(path) for path in looked_at)
    heads, kind = draft.model.num_attention_heads, draft.plan["context_parallel.kind"]
    if kind not in ("ulysses", "ring_ulysses") or (cp % size == 0 and heads % (tp * size) == 0):
        return None
    fitting = [d for d in divisors(gcd(cp, max(1, heads // tp))) if d < size]
    kinds = {1: "ring"}
    smaller = tuple(
        repair(context_parallel__kind=kinds.get(d, "ring_ulysses"), context_parallel__ulysses_size=d)
        for d in dict.fromkeys((*fitting[-1:], 1))
    )
    return Violation(
        rule="ulysses-heads",
        message=f"ulysses_size = {size} must divide cp = {cp} and the {heads} heads / tp = {tp}",
        path="plan.context_parallel.ulysses_size",
        values={
            "model.num_attention_heads": heads,
            **values_of(draft.plan, "context_parallel.kind", *looked_at),
        },
        repairs=smaller,
    )


ALIGNED = 8
"""Elements of 16 bits in 16 bytes, the vector load that kernels of products are written for."""


def vocab_alignment(draft: Draft) -> Violation | None:
    """Products of the head are fast where a rank's part of the vocabulary is a multiple of 8; XLA pads by itself."""
    model, tp = draft.model, draft.count("parallel.tp")
    vocab = padded_vocab(model, draft.software, tp)
    if vocab % (ALIGNED * tp) == 0 or draft.cluster.accelerator.is_tpu:
        return None
    return Violation(
        rule="vocab-alignment",
        message=f"a rank's part of the vocabulary, {vocab} / tp {tp}, is no multiple of {ALIGNED}: head products "
        f"may take longer than projected; set model.vocab_multiple = {ALIGNED * tp}",
        path="model.vocab_multiple",
        values={"model.vocab_size": model.vocab_size, **values_of(draft.plan, "parallel.tp")},
        severity="warning",
    )


def recompute_choice(draft: Draft) -> Violation | None:
    """A policy with what it needs, and layer ids that exist."""
    policy, layers = draft.plan["recompute.policy"], draft.plan["recompute.layers"]
    beyond = sorted(n for n in layers if n >= draft.model.num_layers) if isinstance(layers, tuple) else []
    needs = {
        "block": "num_layers or layers" if layers is None and draft.plan["recompute.num_layers"] is None else "",
        "modules": "modules" if not draft.plan["recompute.modules"] else "",
    }.get(str(policy), "")
    if not beyond and not needs:
        return None
    missing = f"layers {beyond} do not exist in a model of {draft.model.num_layers}"
    path = "plan.recompute.layers" if beyond else "plan.recompute.policy"
    return Violation(
        rule="recompute",
        message=f"policy {policy} needs {needs}" if needs else missing,
        path=path,
        values={
            "model.num_layers": draft.model.num_layers,
            **values_of(draft.plan, *(f"recompute.{name}" for name in ("policy", "num_layers", "layers", "modules"))),
        },
        repairs=(
            (repair(recompute__layers=tuple(n for n in layers if n < draft.model.num_layers)),)
            if isinstance(layers, tuple) and beyond
            else (repair(recompute__policy="full"), repair(recompute__policy="none"))
        ),
    )


RULES = (
    heads_tp, gqa_tp, widths_tp, expert_width_etp, linear_heads_tp, vocab_alignment, ulysses_heads, recompute_choice,
)  # fmt: skip
