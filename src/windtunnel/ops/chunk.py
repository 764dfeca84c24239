"""Lowers one chunk: what a virtual stage executes for one micro-batch, and the parameters a rank of it holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from windtunnel.job.job import Job
from windtunnel.job.model import LayerSpec, ModelSpec
from windtunnel.job.plan import Chunk
from windtunnel.job.vocabulary import padded_vocab
from windtunnel.ops.context import context
from windtunnel.ops.layer import lower_embedding, lower_head, lower_layer
from windtunnel.ops.op import Op
from windtunnel.ops.weights import (
    Weight,
    embedding_weights,
    final_norm_weights,
    head_weights,
    layer_weights,
    local_count,
    mtp_weights,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A repeated piece of a chunk: one layer, the embedding, or head and loss; with what backward re-executes."""

    kind: str
    layer: LayerSpec | None = None
    recompute: frozenset[str] = frozenset()
    high_precision: bool = False


@dataclass(frozen=True, slots=True)
class LocalParameters:
    """Parameters one rank holds, before data-parallel sharding. ``dense`` replicate over dp·cp, ``expert`` over edp."""

    dense: float
    expert: float

    @property
    def total(self) -> float:
        return self.dense + self.expert

    def __add__(self, other: LocalParameters) -> LocalParameters:
        return LocalParameters(self.dense + other.dense, self.expert + other.expert)

    def times(self, factor: float) -> LocalParameters:
        return LocalParameters(self.dense * factor, self.expert * factor)


NO_PARAMETERS = LocalParameters(0.0, 0.0)


def units(job: Job, chunk: Chunk) -> tuple[tuple[Unit, int], ...]:
    """The distinct units of a chunk with how often each occurs, in model order of first occurrence."""
    plan = job.plan
    return counted_units(job.model, plan.recompute, plan.precision.first_last_layers_bf16, chunk)


def counted_units(
    model: ModelSpec, recompute_of: Sequence[frozenset[str]], edge: int, chunk: Chunk
) -> tuple[tuple[Unit, int], ...]:
    """The units of a chunk when layer i re-executes ``recompute_of[i]`` and ``edge`` layers at each end stay bf16."""
    counted: Counter[Unit] = Counter()
    if chunk.embedding:
        counted[Unit(kind="embedding")] += 1
    layers, last = model.layers, model.num_layers - edge
    # Layers that are one object are counted before their unit is made: hashing a unit per layer would cost most.
    alike: Counter[tuple[int, frozenset[str], bool]] = Counter()
    first: dict[tuple[int, frozenset[str], bool], LayerSpec] = {}
    for index in chunk.layers:
        key = (id(layers[index]), recompute_of[index], index < edge or index >= last)
        first.setdefault(key, layers[index])
        alike[key] += 1
    for key, occurrences in alike.items():
        _, recompute, high = key
        counted[Unit(kind="layer", layer=first[key], recompute=recompute, high_precision=high)] += occurrences
    for depth in range(chunk.num_mtp_layers):
        position = model.num_layers + depth
        recompute = recompute_of[position] if position < len(recompute_of) else frozenset()
        counted[Unit(kind="layer", layer=model.mtp_layer, recompute=recompute)] += 1
        counted[Unit(kind="mtp_head")] += 1
    if chunk.head:
        counted[Unit(kind="head")] += 1
    return tuple(counted.items())


def lower_unit(job: Job, unit: Unit) -> tuple[Op, ...]:
    """Ops of one unit, forward and backward."""
    ctx = context(job, high_precision=unit.high_precision)
    if unit.kind == "embedding":
        return lower_embedding(job.model, ctx)
    if unit.layer is None:
        return lower_head(job.model, padded_vocab(job.model, job.software, job.plan.parallel.tp), ctx)
    return lower_layer(job.model, unit.layer, ctx)


def unit_parameters(job: Job, unit: Unit) -> LocalParameters:
    """Parameters of one unit on one rank; an MTP head shares the model's matrix and adds none."""
    return _local(unit_weights(job, unit), job.plan.parallel.tp, job.plan.parallel.ep, job.plan.parallel.etp)


def unit_weights(job: Job, unit: Unit) -> tuple[Weight, ...]:
    """Weights of one unit; a tied head is a second copy of the embedding when the pipeline has more than one stage."""
    model, parallel = job.model, job.plan.parallel
    vocab = padded_vocab(model, job.software, parallel.tp)
    if unit.kind == "embedding":
        return embedding_weights(_positioned(job), vocab)
    if unit.kind == "head":
        return (*final_norm_weights(model), *head_weights(model, vocab, own_copy=parallel.pp > 1))
    if unit.kind == "mtp_head" or unit.layer is None:
        return ()
    return mtp_weights(model) if unit.layer.is_mtp else layer_weights(model, unit.layer)


def chunk_parameters(job: Job, chunk: Chunk) -> LocalParameters:
    """Parameters of a chunk on one rank. Raises nothing: sizes were checked when the job was built."""
    total = NO_PARAMETERS
    for unit, occurrences in units(job, chunk):
        total += unit_parameters(job, unit).times(occurrences)
    return total


@lru_cache(maxsize=4096)
def _local(weights: tuple[Weight, ...], tp: int, ep: int, etp: int) -> LocalParameters:
    dense = sum(local_count(weight, tp, ep, etp) for weight in weights if weight.shard != "expert")
    expert = sum(local_count(weight, tp, ep, etp) for weight in weights if weight.shard == "expert")
    return LocalParameters(dense, expert)


def _positioned(job: Job) -> ModelSpec:
    """A model with learned positions of unstated number has one per token of the sequence."""
    model = job.model
    if model.position == "learned" and not model.max_position_embeddings:
        return replace(model, max_position_embeddings=job.plan.batch.sequence_length)
    return model
