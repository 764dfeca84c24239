"""Layers over stages, and micro-batches through a schedule."""

from __future__ import annotations

from windtunnel.job.draft import Draft
from windtunnel.job.legality.violation import Repair, Violation
from windtunnel.job.legality.words import divisors, nearest, repair, values_of
from windtunnel.job.plan import LOOPED_SCHEDULES

_COUNTS = ("pipeline.count_embedding", "pipeline.count_head")
_WRITTEN = (
    "pipeline.layout", "pipeline.layers_per_stage", "pipeline.first_stage_layers", "pipeline.last_stage_layers",
)  # fmt: skip
_TORCH_PIPELINES = frozenset({"torchtitan", "automodel"})
# Orders are laid out action by action: this many keep a projection within seconds and a few hundred MB.
_MAX_ACTIONS = 4_000_000
# megatron/core/pipeline_parallel/schedules.py took group sizes other than pp, and remainders, from this release on.
_GROUPS_SINCE = "2024-12"


def _is_written(draft: Draft) -> bool:
    """Whether the plan itself says which stage holds which layers."""
    return any(f"plan.{path}" in draft.given for path in _WRITTEN)


def _counted(draft: Draft) -> int:
    """Layers and what counts as one."""
    return draft.model.num_layers + sum(bool(draft.plan[path]) for path in _COUNTS)


def _must_be_even(draft: Draft) -> bool:
    """Whether the split must come out even: where the framework asks for it, or ends are counted to make it so."""
    return draft.software.is_megatron or any(draft.plan[path] for path in _COUNTS)


def stages_layers(draft: Draft) -> Violation | None:
    pp, v = draft.count("parallel.pp"), draft.count("pipeline.virtual_stages")
    layers = draft.model.num_layers
    if _is_written(draft) or layers + 2 >= pp * v:
        return None
    fitting = [d for d in divisors(layers) if d * v <= layers and d <= pp]
    return Violation(
        rule="stages-layers",
        message=f"{layers} layers cannot fill pp × virtual_stages = {pp} × {v} = {pp * v} chunks",
        path="plan.parallel.pp",
        values={"model.num_layers": layers, **values_of(draft.plan, "parallel.pp", "pipeline.virtual_stages")},
        repairs=(
            *(repair(parallel__pp=d) for d in fitting[-1:]),
            *((repair(pipeline__virtual_stages=1),) if v > 1 and pp <= layers else ()),
        ),
    )


def layers_pp(draft: Draft) -> Violation | None:
    """Megatron-core refuses an uneven split that the plan does not spell (older versions dropped the rest silently)."""
    pp, v, counted = draft.count("parallel.pp"), draft.count("pipeline.virtual_stages"), _counted(draft)
    if _is_written(draft) or not _must_be_even(draft) or counted % pp == 0:
        return None
    return Violation(
        rule="layers-pp",
        message=f"{_layers_in_words(draft)} must split evenly over pp = {pp} stages",
        path="plan.parallel.pp",
        values={"model.num_layers": draft.model.num_layers, **values_of(draft.plan, "parallel.pp", *_COUNTS)},
        repairs=_even_repairs(draft, pp, v),
    )


def layers_vpp(draft: Draft) -> Violation | None:
    pp, v, counted = draft.count("parallel.pp"), draft.count("pipeline.virtual_stages"), _counted(draft)
    evenly = counted % pp or counted // pp % v == 0
    if v == 1 or _is_written(draft) or not _must_be_even(draft) or evenly:
        return None
    return Violation(
        rule="layers-vpp",
        message=f"{_layers_in_words(draft)} leave {counted // pp} a stage, no multiple of virtual_stages = {v}",
        path="plan.pipeline.virtual_stages",
        values={
            "model.num_layers": draft.model.num_layers,
            **values_of(draft.plan, "parallel.pp", "pipeline.virtual_stages", *_COUNTS),
        },
        repairs=(
            *(repair(pipeline__virtual_stages=d) for d in nearest(divisors(counted // pp), v)),
            *_even_repairs(draft, pp, v)[1:],
        ),
    )


def _counts_for(draft: Draft, chunks: int) -> tuple[bool, bool] | None:
    """Whether embedding and head must count for an even split."""
    layers = draft.model.num_layers
    tries = ((False, False), (True, True), (False, True))
    return next((pair for pair in tries if (layers + sum(pair)) % chunks == 0), None)


def _layers_in_words(draft: Draft) -> str:
    extra = "".join(f" + {path.rpartition('_')[2]}" for path in _COUNTS if draft.plan[path])
    layers = f"{draft.model.num_layers} layers"
    return f"{layers}{extra} = {_counted(draft)}" if extra else layers


def _even_repairs(draft: Draft, pp: int, v: int) -> tuple[Repair, ...]:
    """The nearest pp that divides; embedding and head counted; first and last stage written."""
    counted = _counted(draft)
    stages = [repair(parallel__pp=d) for d in nearest(tuple(d for d in divisors(counted) if counted // d % v == 0), pp)]
    counts = _counts_for(draft, pp * v)
    flags = [repair(pipeline__count_embedding=counts[0], pipeline__count_head=counts[1])] if counts else []
    return (*stages, *flags, *_first_and_last(draft.model.num_layers, pp, v))


def _first_and_last(layers: int, pp: int, v: int) -> tuple[Repair, ...]:
    """Equal middle stages of one layer group more than the ends, the nearest split to even."""
    if pp < 3:
        return ()
    middle = -(-layers // (pp * v)) * v
    ends = layers - middle * (pp - 2)
    first = -(-ends // (2 * v)) * v
    if first < v or ends - first < v or (ends - first) % v:
        return ()
    return (repair(pipeline__first_stage_layers=first, pipeline__last_stage_layers=ends - first),)


def vpp_needs_pp(draft: Draft) -> Violation | None:
    pp, v = draft.count("parallel.pp"), draft.count("pipeline.virtual_stages")
    if v == 1 or pp > 1:
        return None
    return Violation(
        rule="vpp-needs-pp",
        message=f"virtual_stages = {v} needs more than one pipeline stage",
        path="plan.pipeline.virtual_stages",
        values=values_of(draft.plan, "parallel.pp", "pipeline.virtual_stages", "pipeline.schedule"),
        repairs=(repair(pipeline__virtual_stages=1, pipeline__schedule="1f1b"), repair(parallel__pp=2)),
    )


def one_spelling(draft: Draft) -> Violation | None:
    """A layout, layers per stage, first and last counts, and counted ends exclude each other."""
    groups = {
        "layout": {"layout"},
        "layers_per_stage": {"layers_per_stage"},
        "first and last counts": {"first_stage_layers", "last_stage_layers"},
        "counted ends": {name for name in ("count_embedding", "count_head") if draft.plan[f"pipeline.{name}"]},
    }
    used = {
        name: sorted(f"pipeline.{key}" for key in keys if f"plan.pipeline.{key}" in draft.given)
        for name, keys in groups.items()
    }
    used = {name: paths for name, paths in used.items() if paths}
    if len(used) < 2:
        return None
    first, *others = used.values()
    return Violation(
        rule="uneven-vs-account",
        message=f"{' and '.join(used)} say twice which layers a stage holds",
        path=f"plan.{first[0]}",
        values=values_of(draft.plan, *(path for paths in used.values() for path in paths)),
        repairs=(Repair({f"plan.{path}": False if "count_" in path else None for paths in others for path in paths}),),
    )


def written_layout(draft: Draft) -> Violation | None:
    """A spelling of the layout that does not fit the model or the stages."""
    fault = draft.layout_fault
    if fault is None or not _is_written(draft):
        return None
    rules = {"plan.pipeline.layout": "layout", "plan.pipeline.layers_per_stage": "layers-per-stage"}
    written = [path for path in _WRITTEN if f"plan.{path}" in draft.given]
    return Violation(
        rule=rules.get(fault.path, "uneven-first-last"),
        message=f"{fault.rule}; {fault.remedy}",
        path=fault.path,
        values={
            "model.num_layers": draft.model.num_layers,
            **values_of(draft.plan, "parallel.pp", "pipeline.virtual_stages", *written),
        },
        repairs=(Repair({f"plan.{path}": None for path in written}),),
    )


def num_microbatches(draft: Draft) -> int | None:
    """Micro-batches of a step; None where the batch does not divide."""
    dp = draft.plan["parallel.dp"]
    per_step = draft.count("batch.micro_batch_size") * (dp if isinstance(dp, int) else 0)
    batch = draft.count("batch.global_batch_size")
    return None if per_step == 0 or batch % per_step else batch // per_step


def interleaved_m(draft: Draft) -> Violation | None:
    """Megatron-core's rule for the interleaved schedule; releases before groups demanded m % pp == 0."""
    m, pp, group = num_microbatches(draft), draft.count("parallel.pp"), draft.count("pipeline.microbatch_group_size")
    interleaved = draft.plan["pipeline.schedule"] == "interleaved_1f1b" and draft.count("pipeline.virtual_stages") > 1
    if m is None or pp == 1 or not interleaved or not draft.software.is_megatron:
        return None
    if draft.software.date < _GROUPS_SINCE:
        legal, rule = m % pp == 0, f"a multiple of pp = {pp}"
    else:
        legal = pp <= group <= m and (m % group == 0 or m % group >= pp)
        rule = f"at least the group size N = {group} (itself at least pp = {pp}), with a remainder of 0 or at least pp"
    if legal:
        return None
    return Violation(
        rule="interleaved-m",
        message=f"the interleaved schedule needs micro-batches m = {m} to be {rule}",
        path="plan.batch.global_batch_size",
        values={
            "num_microbatches": m,
            **values_of(
                draft.plan,
                "batch.global_batch_size",
                "parallel.pp",
                "pipeline.microbatch_group_size",
                "pipeline.virtual_stages",
            ),
        },
        repairs=_batch_repairs(draft, m, max(pp, group)),
    )


def _batch_repairs(draft: Draft, m: int, unit: int) -> tuple[Repair, ...]:
    """Batches of the nearest multiples of ``unit`` micro-batches; or no interleaving."""
    batch = draft.count("batch.global_batch_size")
    counts = [n for n in dict.fromkeys((-(-m // unit) * unit, m // unit * unit)) if n > 0]
    return (
        *(repair(batch__global_batch_size=batch // m * n) for n in counts),
        repair(pipeline__virtual_stages=1, pipeline__schedule="1f1b"),
    )


def microbatches_stages(draft: Draft) -> Violation | None:
    """torch.distributed.pipelining: 1F1B refuses fewer micro-batches than stages (pytorch PR 144702)."""
    m, pp = num_microbatches(draft), draft.count("parallel.pp")
    schedule = draft.plan["pipeline.schedule"]
    ours = draft.software.framework in _TORCH_PIPELINES and (schedule == "1f1b" or schedule in LOOPED_SCHEDULES)
    if m is None or m >= pp or not ours:
        return None
    batch = draft.count("batch.global_batch_size") // m
    return Violation(
        rule="microbatches-stages",
        message=f"{m} micro-batches cannot feed pp = {pp} stages: at least one a stage is needed",
        path="plan.batch.global_batch_size",
        values={
            "num_microbatches": m,
            **values_of(draft.plan, "parallel.pp", "batch.global_batch_size", "batch.micro_batch_size"),
        },
        repairs=(repair(batch__global_batch_size=batch * pp), *_smaller_microbatches(draft, m, pp)),
    )


def _smaller_microbatches(draft: Draft, m: int, wanted: int) -> tuple[Repair, ...]:
    size = draft.count("batch.micro_batch_size")
    fitting = [d for d in divisors(size) if m * size // d >= wanted]
    return tuple(repair(batch__micro_batch_size=d) for d in fitting[-1:])


def too_many_microbatches(draft: Draft) -> Violation | None:
    m = num_microbatches(draft)
    chunks = draft.count("parallel.pp") * draft.count("pipeline.virtual_stages")
    if m is None or m * chunks <= _MAX_ACTIONS:
        return None
    batch = draft.count("batch.global_batch_size") // m * max(1, _MAX_ACTIONS // chunks)
    return Violation(
        rule="too-many-microbatches",
        message=f"{m} micro-batches over {chunks} chunks are more actions than can be timed ({_MAX_ACTIONS})",
        path="plan.batch.global_batch_size",
        values=values_of(draft.plan, "batch.global_batch_size", "batch.micro_batch_size", "parallel.dp"),
        repairs=(repair(batch__global_batch_size=batch),),
    )


def schedule(draft: Draft) -> Violation | None:
    """The schedule's own refusal, where no rule above says it in job terms."""
    said = (interleaved_m, microbatches_stages, vpp_needs_pp, stages_layers, too_many_microbatches)
    if draft.schedule_fault is None or any(rule(draft) for rule in said):
        return None
    name, pp = draft.plan["pipeline.schedule"], draft.count("parallel.pp")
    return Violation(
        rule="schedule",
        message=f"{name} {draft.schedule_fault}",
        path="plan.pipeline.schedule",
        values={
            "num_microbatches": num_microbatches(draft),
            **values_of(
                draft.plan,
                "pipeline.schedule",
                "parallel.pp",
                "pipeline.virtual_stages",
                "pipeline.microbatch_group_size",
            ),
        },
        repairs=(repair(pipeline__schedule="1f1b", pipeline__virtual_stages=1),) if pp >= 1 else (),
    )


RULES = (
    stages_layers, layers_pp, layers_vpp, vpp_needs_pp, one_spelling, written_layout, interleaved_m,
    microbatches_stages, too_many_microbatches, schedule,
)  # fmt: skip
