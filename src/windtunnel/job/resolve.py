"""Effective values: what a plan and its software come to once every gap is filled.

Strongest first: given, the framework's default, the format's neutral default; and what follows from others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import gcd
from typing import Any

from windtunnel import dtypes
from windtunnel.job.cluster import Accelerator, Cluster
from windtunnel.job.draft import Draft
from windtunnel.job.job import Origin
from windtunnel.job.ledger import Ledger
from windtunnel.job.model import ModelSpec
from windtunnel.job.plan import LOOPED_SCHEDULES, V_SCHEDULES
from windtunnel.job.software import AttentionBackend, Software, SoftwareDefault, SoftwareProfile

OVERLAPS = ("grad_reduce", "param_gather", "tp_comm", "cp_comm", "ep_comm", "p2p", "delay_wgrad")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """Effective values by path below their section, and where those not given came from (full paths)."""

    values: Mapping[str, object]
    origin: tuple[Origin, ...]
    warnings: tuple[str, ...]


def resolve_software(
    given: Mapping[str, object], profile: SoftwareProfile, accelerator: Accelerator
) -> tuple[Software, Resolved]:
    """The software in force. ``given``: full paths; attention ``auto`` counts as not given."""
    auto = given.get("software.attention") == "auto"
    kept = {path: value for path, value in given.items() if not auto or path != "software.attention"}
    ledger = Ledger(kept, {path: _of_vendor(default, accelerator) for path, default in by_path(profile).items()})
    ledger.take("software.framework", profile.framework)
    ledger.take("software.date", profile.date, "the newest date known of this framework")
    ledger.take("software.attention", "te-fused" if profile.traits.kept_tensors == "megatron" else "sdpa")
    ledger.take("software.compiled", False)
    ledger.take("software.cuda_graphs", "none")
    ledger.take("software.transformer_impl", "te")
    ledger.take("software.allocator", "default")
    values: dict[str, Any] = _below(ledger.values, "software.")
    scope = given.get("software.cuda_graph_scope", ledger.default("software.cuda_graph_scope"))
    software = Software(
        version=given.get("software.version"),  # type: ignore[arg-type]
        cuda_graph_scope=None if scope is None else frozenset(scope),  # type: ignore[call-overload]
        traits=profile.traits,
        **values,
    )
    return software, Resolved(values=values, origin=tuple(ledger.origin), warnings=tuple(ledger.warnings))


def resolve_plan(
    given: Mapping[str, object],
    *,
    model: ModelSpec,
    cluster: Cluster,
    software: Software,
    profile: SoftwareProfile,
    virtual_stages: tuple[int, str] | None = None,
) -> Resolved:
    """Every plan path with its effective value. ``given``: full paths; ``virtual_stages``: chunks per stage that
    a layout implies, and why."""
    ledger = Ledger(given, by_path(profile))
    _parallel(ledger, model, cluster, software)
    _pipeline(ledger, virtual_stages)
    for name in ("micro_batch_size", "global_batch_size", "sequence_length"):
        ledger.take(f"plan.batch.{name}", None)
    _sharding(ledger, cluster)
    _precision(ledger, software)
    ledger.take("plan.optimizer", "adamw")
    _recompute(ledger)
    _moe(ledger)
    _overlap(ledger)
    _context_parallel(ledger, cluster)
    _rest(ledger)
    return Resolved(values=_below(ledger.values, "plan."), origin=tuple(ledger.origin), warnings=tuple(ledger.warnings))


def _of_vendor(default: SoftwareDefault, accelerator: Accelerator) -> SoftwareDefault:
    """A default that differs by vendor, as the one for this accelerator; ``other`` for a vendor not named."""
    if not isinstance(default.value, Mapping):
        return default
    return replace(default, value=default.value.get(accelerator.vendor, default.value["other"]))


def by_path(profile: SoftwareProfile) -> dict[str, SoftwareDefault]:
    return {default.path: default for default in profile.defaults}


def _below(values: Mapping[str, object], prefix: str) -> dict[str, object]:
    return {path.removeprefix(prefix): value for path, value in values.items()}


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value


def _parallel(ledger: Ledger, model: ModelSpec, cluster: Cluster, software: Software) -> None:
    tp, cp, pp, _ = (_number(ledger.take(f"plan.parallel.{name}", 1)) for name in ("tp", "cp", "pp", "ep"))
    dp = replicas(cluster.num_accelerators, tp, cp, pp)
    ledger.derive("plan.parallel.dp", dp, "num_accelerators / (tp · cp · pp)")
    if software.traits.etp_follows_tp and model.is_moe:
        ledger.derive("plan.parallel.etp", tp, f"{software.framework} takes tp where etp is not set")
    else:
        ledger.take("plan.parallel.etp", 1)
    if tp == 1:
        ledger.force("plan.parallel.sequence_parallel", False, "there is nothing to split at tp = 1")
    else:
        ledger.derive("plan.parallel.sequence_parallel", True, "true where tp > 1")
    ledger.take("plan.parallel.order", ("tp", "cp", "ep", "dp", "pp"))


def replicas(num_accelerators: int, tp: int, cp: int, pp: int) -> int | None:
    """dp = num_accelerators / (tp · cp · pp); None where that is no whole number."""
    dp, rest = divmod(num_accelerators, tp * cp * pp)
    return dp if rest == 0 and dp > 0 else None


def _pipeline(ledger: Ledger, implied: tuple[int, str] | None) -> None:
    pp = _number(ledger.values["plan.parallel.pp"])
    schedule = ledger.given("plan.pipeline.schedule") or ledger.default("plan.pipeline.schedule")
    stages, why = implied or _virtual_stages(schedule, pp)
    virtual = _number(ledger.derive("plan.pipeline.virtual_stages", stages, why))
    named = "interleaved_1f1b" if virtual > 1 else "1f1b"
    if schedule is None:
        ledger.derive("plan.pipeline.schedule", named, f"virtual_stages = {virtual}")
    else:
        ledger.take("plan.pipeline.schedule", named)
    for name in ("layout", "layers_per_stage", "first_stage_layers", "last_stage_layers", "orders"):
        ledger.values[f"plan.pipeline.{name}"] = ledger.given(f"plan.pipeline.{name}")
    ledger.take("plan.pipeline.count_embedding", False)
    ledger.take("plan.pipeline.count_head", False)
    ledger.derive("plan.pipeline.microbatch_group_size", pp, "pp")


def _virtual_stages(schedule: object, pp: int) -> tuple[int, str]:
    if schedule in V_SCHEDULES:
        return 2, f"{schedule} folds the model into a V: two chunks a stage"
    if schedule in LOOPED_SCHEDULES and pp > 1:
        return 2, f"{schedule} needs two chunks a stage or more"
    return 1, "one chunk a stage"


def _sharding(ledger: Ledger, cluster: Cluster) -> None:
    strategy = ledger.take("plan.sharding.strategy", "ddp")
    size, why = shard_size(strategy, ledger.values, cluster.accelerators_per_node)
    ledger.derive("plan.sharding.shard_size", size, why)
    ledger.take("plan.sharding.implementation", None)


def shard_size(strategy: object, values: Mapping[str, object], per_node: int) -> tuple[int | None, str]:
    """Ranks that share the states: all of dp · cp; for hsdp those of one node."""
    dp, cp, tp = (values[f"plan.parallel.{name}"] for name in ("dp", "cp", "tp"))
    if dp is None:
        return None, "dp is not known"
    everyone = _number(dp) * _number(cp)
    if strategy == "hsdp":
        return gcd(everyone, max(1, per_node // _number(tp))), "dp · cp ranks of one node"
    return everyone, "dp · cp"


def _precision(ledger: Ledger, software: Software) -> None:
    compute = str(ledger.take("plan.precision.compute", "bf16"))
    width = dtypes.activation(compute)
    default = ledger.default("plan.precision.params")
    if width != "bf16" and default in (None, "bf16"):
        params = ledger.derive("plan.precision.params", width, f"as compute, {compute}")
    else:
        params = ledger.take("plan.precision.params", width)
    reduced = ledger.given("plan.precision.grad_reduce")
    if software.traits.one_gradient_buffer and (reduced is not None or compute == "fp16"):
        why = "the framework accumulates and reduces gradients in one buffer, in the dtype of grad_reduce"
        grads = ledger.derive("plan.precision.grads", reduced or "fp16", why)
    else:
        grads = ledger.take("plan.precision.grads", "fp32")
    ledger.take("plan.precision.grad_reduce", grads, "as grads")
    if params == "fp32":
        ledger.derive("plan.precision.master", "none", "params are fp32 already")
    else:
        ledger.take("plan.precision.master", "fp32")
    ledger.take("plan.precision.optimizer_state", "fp32")
    ledger.take("plan.precision.first_last_layers_bf16", 0)
    ledger.take("plan.precision.attention", width)
    ledger.values["plan.precision.activation_input"] = ledger.given("plan.precision.activation_input") or width


def _recompute(ledger: Ledger) -> None:
    ledger.take("plan.recompute.policy", "none")
    for name in ("num_layers", "layers", "modules"):
        value = ledger.given(f"plan.recompute.{name}")
        value = ledger.default(f"plan.recompute.{name}") if value is None else value
        ledger.values[f"plan.recompute.{name}"] = tuple(value) if isinstance(value, list) else value


def _moe(ledger: Ledger) -> None:
    ledger.take("plan.moe.dispatcher", "alltoall")
    routing = ledger.take("plan.moe.routing", "balanced")
    ledger.take("plan.moe.imbalance", 1.0)
    if routing == "skewed" and not ledger.gave("plan.moe.imbalance"):
        ledger.warnings.append(
            "plan.moe.imbalance is not given: routing is skewed, and the busiest rank is taken to receive no more "
            "than its share (1.0); the true step is slower"
        )
    ledger.take("plan.moe.capacity_factor", None, "dropless")
    ledger.take("plan.moe.grouped_gemm", True)
    ledger.take("plan.moe.permute_fusion", False)
    ledger.take("plan.moe.sync_free", False)


def _overlap(ledger: Ledger) -> None:
    """A framework's overlap defaults hold where there is something to hide."""
    values = ledger.values
    exists = {
        "param_gather": values["plan.sharding.strategy"] != "ddp",
        "tp_comm": bool(values["plan.parallel.sequence_parallel"]),
        "cp_comm": values["plan.parallel.cp"] != 1,
        "ep_comm": values["plan.parallel.ep"] != 1,
        "delay_wgrad": values["plan.parallel.ep"] != 1,
        "p2p": values["plan.parallel.pp"] != 1,
    }
    for name in OVERLAPS:
        if exists.get(name, True):
            ledger.take(f"plan.overlap.{name}", name == "cp_comm")
        else:
            ledger.derive(f"plan.overlap.{name}", False, "there is nothing to overlap")


def _context_parallel(ledger: Ledger, cluster: Cluster) -> None:
    kind = ledger.take("plan.context_parallel.kind", "ring")
    cp, tp = (_number(ledger.values[f"plan.parallel.{name}"]) for name in ("cp", "tp"))
    size, why = ulysses_size(kind, cp, tp, cluster.accelerators_per_node)
    ledger.derive("plan.context_parallel.ulysses_size", size, why)
    ledger.take("plan.context_parallel.load_balanced", True)


def ulysses_size(kind: object, cp: int, tp: int, per_node: int) -> tuple[int, str]:
    """Ranks of the context-parallel group that exchange heads; the others pass keys and values around."""
    if kind == "ulysses":
        return cp, "all of cp exchange heads"
    if kind == "ring_ulysses":
        return gcd(cp, max(1, per_node // tp)), "accelerators of the cp group in one node"
    return 1, "no heads are exchanged"


def _rest(ledger: Ledger) -> None:
    modules = ledger.take("plan.offload.modules", ())
    ledger.take("plan.offload.activations", 1.0 if modules else 0.0, "all of the modules named, else none")
    ledger.take("plan.offload.optimizer", "none")
    ledger.take("plan.loss.fused_cross_entropy", False)
    ledger.take("plan.loss.implementation", "native")
    ledger.take("plan.loss.vocab_parallel", True)
    ledger.take("plan.loss.logits_dtype", dtypes.activation(str(ledger.values["plan.precision.compute"])))
    ledger.take("plan.dropout.hidden", 0.0)
    ledger.take("plan.dropout.attention", 0.0)


def amend(draft: Draft, changes: Mapping[str, object]) -> Draft:
    """A draft with some full paths changed and what follows from them derived anew.

    A None takes a value back. The layout itself is left out: rules look at the counts that shape it.
    """
    cluster, software = _amend_cluster(draft.cluster, changes), draft.software
    if "software.attention" in changes:
        software = replace(software, attention=_VENDOR_NEUTRAL)
    moved = {"plan.parallel.pp", "plan.pipeline.virtual_stages"} & changes.keys()
    stale: frozenset[str] = frozenset(_LAYOUTS) if moved else frozenset()
    given = (draft.given - stale | changes.keys()) - {path for path, value in changes.items() if value is None}
    full = {f"plan.{path}": value for path, value in draft.plan.items()}
    full |= dict.fromkeys(stale) | {path: value for path, value in changes.items() if path in full}
    full |= _following(full, cluster, model=draft.model, software=software, given=given, changes=changes)
    plan = _below(full, "plan.")
    amended = replace(draft, plan=plan, cluster=cluster, software=software, given=given)
    return replace(amended, layout=None, layout_fault=None, schedule_fault=None)


_VENDOR_NEUTRAL: AttentionBackend = "sdpa"
_GRID = frozenset({"plan.parallel.tp", "plan.parallel.cp", "plan.parallel.pp", "cluster.num_accelerators"})
_LAYOUTS = tuple(
    f"plan.pipeline.{name}" for name in ("layout", "layers_per_stage", "first_stage_layers", "last_stage_layers")
)


def _amend_cluster(cluster: Cluster, changes: Mapping[str, object]) -> Cluster:
    if "cluster.num_accelerators" in changes:
        cluster = replace(cluster, num_accelerators=_number(changes["cluster.num_accelerators"]))
    if "cluster.scale_out.kind" in changes:
        kind: Any = changes["cluster.scale_out.kind"]
        cluster = replace(cluster, scale_out=replace(cluster.scale_out, kind=kind))
    return cluster


def _following(
    full: Mapping[str, object],
    cluster: Cluster,
    *,
    model: ModelSpec,
    software: Software,
    given: frozenset[str],
    changes: Mapping[str, object],
) -> dict[str, object]:
    """What follows from changed degrees, where the change does not set it too."""
    tp, cp, pp = (_number(full[f"plan.parallel.{name}"]) for name in ("tp", "cp", "pp"))
    found: dict[str, object] = {}
    if changes.keys() & _GRID and "plan.parallel.dp" not in changes:
        found["plan.parallel.dp"] = replicas(cluster.num_accelerators, tp, cp, pp)
    if tp == 1:
        found["plan.parallel.sequence_parallel"] = False
    if "plan.parallel.etp" not in given and software.traits.etp_follows_tp and model.is_moe:
        found["plan.parallel.etp"] = tp
    if "plan.pipeline.microbatch_group_size" not in given:
        found["plan.pipeline.microbatch_group_size"] = pp
    if isinstance(full["plan.parallel.order"], str):
        found["plan.parallel.order"] = tuple(full["plan.parallel.order"].split("-"))
    regrouped = changes.keys() & (_GRID | {"plan.parallel.dp", "plan.sharding.strategy"})
    if regrouped and "plan.sharding.shard_size" not in changes:
        size, _ = shard_size(full["plan.sharding.strategy"], {**full, **found}, cluster.accelerators_per_node)
        found["plan.sharding.shard_size"] = size
    return found
