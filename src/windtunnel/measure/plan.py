"""What to measure for a job, and why: every op and unit its projection asks for, by share of the step and doubt."""

from __future__ import annotations

from collections import defaultdict
from typing import Literal

from windtunnel.catalog.pilots import eager_software
from windtunnel.cost.measured import MeasuredSource, measured_source
from windtunnel.cost.profile import Key, Pass, Profile
from windtunnel.cost.profile_keys import gathered_by_unit, op_key, optimizer_key, unit_key
from windtunnel.job.job import Job
from windtunnel.measure.task import Task
from windtunnel.measure.wanted import asked
from windtunnel.ops.op import Attention, Gemm, GroupedGemm, Op, Stream
from windtunnel.ops.sizes import Sizes, sizes
from windtunnel.projection.evidence import priced_ops
from windtunnel.projection.pilots import pilot_key, pilots, runs_alone
from windtunnel.projection.project import project
from windtunnel.projection.result import Memory

DOUBT = 0.25
"""Relative uncertainty of what only formulas know, for the order of measuring alone: kernels of one shape scatter by
about that much round a fitted efficiency (docs/hybrid.md)."""
UNIT_PASSES: tuple[Pass, ...] = ("forward", "backward", "grad_input", "grad_weight")
Layers = Literal["blocks", "transformers", "torchtitan", "megatron-core"]
UNIT_KERNELS: dict[Layers, str] = {
    "blocks": "windtunnel.measure.torch.kernels:unit",
    "transformers": "windtunnel.measure.torch.transformers_layers:layer",
    "torchtitan": "windtunnel.measure.torch.torchtitan_layers:layer",
    "megatron-core": "windtunnel.measure.torch.megatron_core_layers:layer",
}
"""Whose layers a unit is: our reference blocks, or those of a framework that is installed."""
EMPTY = Profile(device=(), software=(), method=(), entries=())


def tasks_of(job: Job, known: Profile = EMPTY, co_runners: int = 0, layers: Layers = "blocks") -> tuple[Task, ...]:
    """Tasks of a job, most valuable first: whole units, then what they consist of, and the optimizer.

    A unit's seconds stand on itself; its ops only divide them, so their doubt counts once the unit is left out.
    """
    source = measured_source(job, known, beside=co_runners)
    projection = project(job, source)
    stage, order = projection.busiest_stage, projection.timeline.order
    step = projection.step_time
    units: dict[Sizes, float] = defaultdict(float)
    redone: dict[tuple[Sizes, frozenset[str]], float] = defaultdict(float)
    ops: dict[Key, float] = defaultdict(float)
    described: dict[Key, tuple[Op, str, tuple[object, ...]]] = {}
    for priced in priced_ops(job, source, order, stage):
        units[sizes(job, priced.unit)] += priced.seconds / step
        if priced.again and "per_op" not in priced.unit.recompute:
            redone[sizes(job, priced.unit), priced.unit.recompute] += priced.seconds / 2 / step
        named, timed_by = op_key(priced.op), _kernel(priced.op, sizes(job, priced.unit))
        if named is not None and timed_by is not None:
            ops[named] += priced.seconds / step
            described[named] = (priced.op, *timed_by)
    sharded, kernel = gathered_by_unit(job), UNIT_KERNELS[layers]
    found = [_unit_task(sized, share, known, (co_runners, sharded), kernel) for sized, share in units.items()]
    found += [_again_task(sized, again, share, known, co_runners) for (sized, again), share in redone.items()]
    found += [
        Task(
            keys=(named,),
            kernel=described[named][1],
            arguments=described[named][2],
            label=f"{described[named][0].name} {named.phase} {_shape(named)}",
            share=share,
            uncertainty=_doubt(known, named) / 4,
        )
        for named, share in ops.items()
    ]
    found += _optimizer_tasks(job, source, known, projection.time.optimizer / step)
    found += _pilot_tasks(job, known, projection.memory, co_runners)
    return tuple(sorted(found, key=lambda task: -task.value))


STREAMS = frozenset({"norm", "rope", "residual", "activation", "routing", "permute", "loss"})
"""Kinds of passes over memory that are measured alone, by the last word of their names."""


def _kernel(op: Op, sized: Sizes) -> tuple[str, tuple[object, ...]] | None:
    """The kernel that times an op and its arguments; None for what is measured only inside its unit."""
    if isinstance(op, Gemm | GroupedGemm | Attention):
        return "windtunnel.measure.torch.kernels:op", (op,)
    if isinstance(op, Stream) and op.name.partition(":")[0].rpartition("_")[2] in STREAMS:
        return "windtunnel.measure.torch.streams:stream", (op, sized)
    return None


def _unit_task(sized: Sizes, share: float, known: Profile, how: tuple[int, bool], kernel: str) -> Task:
    """``how``: co-runners, and whether parameters are gathered before use, in which case a backward is never split."""
    co_runners, sharded = how
    passes = UNIT_PASSES[:2] if sized.kind == "embedding" or sharded else UNIT_PASSES
    keys = tuple(unit_key(sized, phase, co_runners, sharded=sharded) for phase in passes)
    return Task(
        keys=keys,
        kernel=kernel,
        arguments=(sized, co_runners, sharded),
        label=f"whole {keys[0].op}, {sized.batch} × {sized.sequence} tokens{', sharded' if sharded else ''}",
        share=share,
        uncertainty=_doubt(known, keys[0]),
    )


def _again_task(sized: Sizes, again: frozenset[str], share: float, known: Profile, co_runners: int) -> Task:
    """The backward of a unit with what it executes again; ``share`` of a step is those ops."""
    named = unit_key(sized, "backward", co_runners, again=again)
    return Task(
        keys=(named,),
        kernel="windtunnel.measure.torch.kernels:again",
        arguments=(sized, again, co_runners),
        label=f"backward of {named.op}",
        share=share,
        uncertainty=_doubt(known, named),
    )


def _optimizer_tasks(job: Job, source: MeasuredSource, known: Profile, share: float) -> list[Task]:
    recorder = asked(job, source, source.fallback.placements)
    return [
        Task(
            keys=(named,),
            kernel="windtunnel.measure.torch.kernels:optimizer",
            arguments=(named, count),
            label=f"{named.op} over {count:,.0f} parameters",
            share=share / len(recorder.optimizers),
            uncertainty=_doubt(known, named),
        )
        for named, count in recorder.optimizers.items()
        if named == optimizer_key(job, count)
    ]


STACKED = 0.02
"""Relative uncertainty of a sum of units as the time of a model: what pilots were seen to take more or less."""


def _pilot_tasks(job: Job, known: Profile, memory: Memory, co_runners: int) -> list[Task]:
    """Pilots, for what no op shows: peak memory, on which all of that half stands, and the time of a whole stack."""
    low, high = memory.interval
    found = []
    for pilot in pilots(job, eager_software()):
        layers = f"a pilot of {pilot.model.num_layers} layers"
        keys = tuple(pilot_key(pilot, what) for what in ("bytes/allocated", "bytes/reserved"))
        doubt = (high - low) / 2 / memory.peak.device if known.find(keys[0]) is None else 0.0
        found.append(_pilot_task(keys, "weighed_pilot", (pilot,), f"peak memory of {layers}", doubt))
        if runs_alone(pilot):
            keys = (pilot_key(pilot, "pilot", co_runners),)
            doubt = STACKED if known.find(keys[0]) is None else 0.0
            found.append(_pilot_task(keys, "pilot", (pilot, co_runners), f"step of {layers}", doubt))
    return found


def _pilot_task(keys: tuple[Key, ...], kernel: str, arguments: tuple[object, ...], label: str, doubt: float) -> Task:
    kernel = f"windtunnel.measure.torch.pilot:{kernel}"
    return Task(keys=keys, kernel=kernel, arguments=arguments, label=label, share=1.0, uncertainty=doubt)


def _doubt(known: Profile, named: Key) -> float:
    """Relative uncertainty of an entry: its spread, its interpolation's error, or that of a formula."""
    found = known.estimate(named)
    return DOUBT if found is None else found.error


def _shape(named: Key) -> str:
    return " ".join(f"{name} {size:g}" for name, size in named.shape)
