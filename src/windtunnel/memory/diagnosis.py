"""A real out-of-memory message against the plan: which class of bytes exceeded it, and what was being allocated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from windtunnel.dtypes import BYTES
from windtunnel.job.job import Job
from windtunnel.job.vocabulary import padded_vocab
from windtunnel.memory.breakdown import MemoryBreakdown
from windtunnel.memory.message import OutOfMemory
from windtunnel.memory.states import shard_sizes
from windtunnel.ops.chunk import chunk_parameters, lower_unit, unit_weights, units
from windtunnel.ops.context import context
from windtunnel.ops.weights import local_count

TENSORS, FRAGMENTS, OUTSIDE, OTHERS = "tensors", "fragmentation", "outside the allocator", "other processes"
GRAPHS = "pools of graphs"
MATCH = 0.01
"""Relative difference within which a request is taken for a tensor of the job; the allocator rounds up to 2 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Excess:
    """A class of device bytes: as planned for the fullest stage, and as the message has it."""

    name: str
    planned: float
    found: float

    @property
    def over(self) -> float:
        return self.found - self.planned


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """``classes`` in bytes, the one furthest over its plan first; ``requested`` are tensors of the size refused.

    ``capacity`` is what the plan counts on; ``planned`` the device bytes of its peak, ``largest`` the class that has
    most of them.
    """

    error: OutOfMemory
    classes: tuple[Excess, ...]
    requested: tuple[str, ...]
    capacity: float
    planned: float
    largest: str

    @property
    def hopeless(self) -> bool:
        """Whether the plan itself needs more than the device has, so that it failed on the way to its peak."""
        return self.planned > (self.error.capacity or self.capacity)

    @property
    def beyond(self) -> float:
        """Device bytes the failed step wanted beyond the plan's peak."""
        return max(0.0, sum(item.over for item in self.classes))

    @property
    def exceeded(self) -> str | None:
        """The class that exceeded the plan most, or the largest of a plan that was too large; None where every class
        kept to it."""
        if self.hopeless:
            return self.largest
        worst = self.classes[0] if self.classes else None
        return worst.name if worst is not None and worst.over > 0 else None


def diagnose(job: Job, error: OutOfMemory, peak: MemoryBreakdown) -> Diagnosis:
    """Compare what the device held with ``peak``, the plan of the fullest stage."""
    found: Mapping[str, tuple[float, float | None]] = {
        TENSORS: (peak.allocated, None if error.needed is None else error.needed - (error.pools or 0.0)),
        GRAPHS: (0.0, error.pools),
        FRAGMENTS: (peak.reserved - peak.allocated, error.unused),
        OUTSIDE: (peak.overhead, error.outside),
        OTHERS: (0.0, error.others),
    }
    classes = [
        Excess(name=name, planned=planned, found=seen) for name, (planned, seen) in found.items() if seen is not None
    ]
    return Diagnosis(
        error=error,
        classes=tuple(sorted(classes, key=lambda item: -item.over)),
        requested=matches(job, error.requested),
        capacity=job.cluster.accelerator.hbm_capacity,
        planned=peak.device,
        largest=max(CLASSES, key=lambda name: float(getattr(peak, name))),
    )


CLASSES = ("weights", "gradients", "master", "moments", "activations", "logits", "buffers", "dispatcher")


def matches(job: Job, requested: float) -> tuple[str, ...]:
    """Tensors of the job that are as large as a request, the closest first, each name once."""
    rounding = 2 * 2**20 if requested > 2**20 else 512
    close = [
        (abs(size - requested), name)
        for name, size in tensors(job)
        if size > 0 and abs(size - requested) <= max(MATCH * requested, rounding if requested > 2**24 else 0)
    ]
    return tuple(dict.fromkeys(name for _, name in sorted(close)))[:4]


def tensors(job: Job) -> Iterator[tuple[str, float]]:
    """Single tensors a rank allocates in a step, in words, with their bytes."""
    ctx, plan, model = context(job), job.plan, job.model
    logits = ctx.tokens * padded_vocab(model, job.software, ctx.tp) / (ctx.tp if plan.loss.vocab_parallel else 1)
    for dtype in ("fp32", "bf16"):
        yield f"{dtype} logits of a micro-batch", BYTES[dtype] * logits
        yield f"a hidden state, {dtype}", BYTES[dtype] * ctx.tokens * model.hidden_size
    dense_shard, _ = shard_sizes(job)
    for chunk in dict.fromkeys(plan.pipeline.layout):
        whole = chunk_parameters(job, chunk)
        yield "the gradients of a chunk", BYTES[plan.precision.grads] * whole.total
        yield "the weights of a chunk", BYTES[plan.precision.params] * whole.total
        yield "fp32 optimizer state of a chunk's shard", BYTES["fp32"] * whole.dense / dense_shard
        for unit, _ in units(job, chunk):
            for op in lower_unit(job, unit):
                yield from ((f"{kept.name.replace('_', ' ')} of a layer", kept.bytes) for kept in op.keeps)
            for weight in unit_weights(job, unit):
                size = local_count(weight, ctx.tp, ctx.ep, ctx.etp)
                for dtype in ("fp32", "bf16"):
                    yield f"{dtype} {weight.name.replace('_', ' ')} matrix or its gradient", BYTES[dtype] * size
