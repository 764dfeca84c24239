"""Every kind of tensor that is alive on a stage at its peak moment, by name: what the classes of a breakdown sum up."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from windtunnel.job.job import Job
from windtunnel.job.plan import Chunk
from windtunnel.memory.breakdown import MemoryBreakdown, Moment
from windtunnel.memory.kept import fsdp_buffers, kept_chunk, kept_unit, placeholder_bytes, stage_units
from windtunnel.memory.states import ByteRates, States, byte_rates, shard_sizes, states
from windtunnel.memory.structure import StageStructure, candidates_of, received_ahead, structures, workspace
from windtunnel.ops.chunk import lower_unit, units
from windtunnel.ops.norm import PER_OP
from windtunnel.ops.op import Kept, Op
from windtunnel.schedule.in_flight import peaks
from windtunnel.schedule.job_order import job_order

PASSING: dict[Moment, str] = {
    "loss": "beside the loss",
    "backward": "backward of a layer",
    "recompute": "recompute and backward of a layer",
    "gradient_reduction": "last reduction",
}
"""What passes at a moment; an optimizer step's is told apart by what is stepped."""


class TensorKind(NamedTuple):
    """``bytes`` of one kind of tensor, of a class of the breakdown; recompute modules that spare it."""

    name: str
    of: str
    bytes: float
    dropped_by: tuple[str, ...] = ()


def tensors_at_peak(job: Job, peak: MemoryBreakdown) -> tuple[TensorKind, ...]:
    """What a stage of ``job`` holds at its peak moment, largest first; together ``peak.allocated``.

    Kept tensors are named as the operations that keep them name them. What waits on the host instead is subtracted in a
    row of its own. Raises LegalityError where the schedule does not apply.
    """
    structure = structures(job)[peak.stage]
    static = [
        TensorKind(name, name, getattr(peak, name)) for name in ("weights", "gradients", "master", "moments", "logits")
    ]
    found = [*static, *_kept(job, peak), *_buffers(job, peak, structure)]
    return tuple(sorted((kind for kind in found if kind.bytes), key=lambda kind: -kind.bytes))


def _kept(job: Job, peak: MemoryBreakdown) -> Iterator[TensorKind]:
    order, layout = job_order(job), job.plan.pipeline.layout
    chunks = tuple(layout[index] for index in order.placement[peak.stage])
    number = _in_flight(job, chunks, peak, peaks(order)[peak.stage], order.virtual_stages)
    total: dict[tuple[str, str], float] = defaultdict(float)
    kinds: dict[tuple[str, str], Kept] = {}
    away = 0.0
    for count, chunk in zip(number, chunks, strict=True):
        for unit, occurrences in units(job, chunk):
            for op, kept in _surviving(lower_unit(job, unit), unit.recompute):
                total[op.name, kept.name] += count * occurrences * kept.bytes
                kinds[op.name, kept.name] = kept
            away += count * occurrences * kept_unit(job, unit).offloaded
    # The policy of every second product is that of frameworks with its family of kept tensors.
    foreign = frozenset() if job.software.traits.kept_tensors == "torchtitan" else PER_OP
    ambiguous = {name for name, times in Counter(name for _, name in kinds).items() if times > 1}
    for (op_name, name), kept in kinds.items():
        own = name.removeprefix(f"{op_name.rpartition('_')[2]}_")
        spelled = f"{op_name}_{own}" if name in ambiguous else name
        yield TensorKind(spelled, kept.of, total[op_name, name], tuple(sorted(kept.dropped_by - foreign)))
    yield TensorKind("on the host instead", "activations", -away)


def _surviving(ops: tuple[Op, ...], recompute: frozenset[str]) -> Iterator[tuple[Op, Kept]]:
    return ((op, kept) for op in ops for kept in op.keeps if kept.survives(recompute))


def _in_flight(
    job: Job, chunks: tuple[Chunk, ...], peak: MemoryBreakdown, vectors: tuple[tuple[int, ...], ...], virtual: int
) -> tuple[int, ...]:
    """Micro-batches of each chunk that are alive at the peak."""
    if not peak.in_flight:
        return (0,) * len(chunks)
    own = [kept_chunk(job, chunk) for chunk in chunks]

    kept = peak.activations + peak.dispatcher

    def off(vector: tuple[int, ...]) -> float:
        """The moments of a vector hold the same activations."""
        first = candidates_of(own, vector, virtual, 0.0)[0]
        return abs(float(first.activations + first.dispatcher) - kept)

    return min(vectors, key=off)


def _buffers(job: Job, peak: MemoryBreakdown, structure: StageStructure) -> Iterator[TensorKind]:
    """The parts of ``peak.buffers``: what lives all step, then what passes at the moment."""
    order, layout = job_order(job), job.plan.pipeline.layout
    held = stage_units(job, tuple(layout[index] for index in order.placement[peak.stage]))
    rates = byte_rates(job)
    resident = {
        "gathered weights and gradients": _states(job, structure, rates).gathered,
        "weight-gradient placeholders": placeholder_bytes(job, held),
        "gathered layers and a gradient of one": fsdp_buffers(job, held),
        "received ahead": received_ahead(job, order.placement[peak.stage]),
        "workspaces": workspace(job),
    }
    for name, size in resident.items():
        yield TensorKind(name, "buffers", size)
    passing = peak.buffers - sum(resident.values())
    if peak.moment != "optimizer":
        yield TensorKind(PASSING.get(peak.moment, peak.moment), "buffers", passing)
        return
    nothing = replace(rates, stepping_weight=0.0, stepping_gradient=0.0, stepping_rest=0.0, stepping_moments=0.0)
    stepped = {
        "copies of weights": replace(nothing, stepping_weight=rates.stepping_weight),
        "fp32 copies of gradients": replace(
            nothing, stepping_gradient=rates.stepping_gradient, stepping_rest=rates.stepping_rest
        ),
        "fp32 copies of moments": replace(nothing, stepping_moments=rates.stepping_moments),
    }
    for name, own in stepped.items():
        yield TensorKind(name, "buffers", _states(job, structure, own).stepping)


def _states(job: Job, structure: StageStructure, rates: ByteRates) -> States:
    parameters = structure.parameters
    return states(parameters.dense, parameters.expert, *shard_sizes(job), rates, structure.largest_tensor)
