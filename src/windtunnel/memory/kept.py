"""Kept tensors of one chunk and the extra a backward needs while it runs, for one micro-batch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from windtunnel.dtypes import BYTES
from windtunnel.job.job import Job
from windtunnel.job.plan import Chunk
from windtunnel.job.vocabulary import padded_vocab
from windtunnel.ops.chunk import Unit, lower_unit, unit_parameters, unit_weights, units
from windtunnel.ops.context import Context, context
from windtunnel.ops.layer import kept_bytes
from windtunnel.ops.moe import routed_rows
from windtunnel.ops.offload import offloaded_bytes
from windtunnel.ops.weights import local_count

NONE: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptChunk:
    """Bytes of one chunk for one micro-batch.

    ``activations`` and ``dispatcher`` live from F to W; ``logits`` from the loss to the start of its backward;
    ``loss_peak`` is what the loss holds beyond ``logits`` at its worst, ``loss_cached`` what it leaves free in blocks
    too small for that; ``backward`` and ``recompute`` are the largest
    passing needs of one layer, the latter with its re-executed activations; ``offloaded`` waits in host memory.
    """

    activations: float
    dispatcher: float
    logits: float
    loss_peak: float
    loss_cached: float
    backward: float
    recompute: float
    offloaded: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptUnit:
    """Bytes of one occurrence of a unit for one micro-batch; names as in ``KeptChunk``."""

    activations: float
    dispatcher: float
    backward: float
    recompute: float
    offloaded: float


def kept_unit(job: Job, unit: Unit) -> KeptUnit:
    """What a unit leaves for its backward under its own recompute policy, and what that backward needs."""
    ctx = context(job)
    # XLA recomputes a layer with the same fusion: point-wise results do not materialise.
    again = frozenset({"core_attn"}) if ctx.kept_tensors == "xla" else NONE
    ops = lower_unit(job, unit)
    kept, sent = kept_bytes(ops, unit.recompute)
    offload = job.plan.offload
    away, sent_away = offloaded_bytes(ops, unit.recompute, offload) if unit.layer is not None else (0.0, 0.0)
    passing = _layer_backward(job, unit, ctx)
    repeats = unit.recompute & {"full", "per_op"}
    return KeptUnit(
        activations=kept - away,
        dispatcher=sent - sent_away,
        backward=passing,
        recompute=passing + sum(kept_bytes(ops, again)) - kept - sent if repeats else 0.0,
        offloaded=away + sent_away,
    )


def kept_chunk(job: Job, chunk: Chunk) -> KeptChunk:
    """The units of a chunk together; of what passes, the largest."""
    counted = [(kept_unit(job, unit), occurrences) for unit, occurrences in units(job, chunk)]
    kept_logits, peak_logits, cached_logits = chunk_logits(job, chunk)
    return KeptChunk(
        activations=sum(n * kept.activations for kept, n in counted),
        dispatcher=sum(n * kept.dispatcher for kept, n in counted),
        logits=kept_logits,
        loss_peak=peak_logits,
        loss_cached=cached_logits,
        backward=max((kept.backward for kept, _ in counted), default=0.0),
        recompute=max((kept.recompute for kept, _ in counted), default=0.0),
        offloaded=sum(n * kept.offloaded for kept, n in counted),
    )


def _layer_backward(job: Job, unit: Unit, ctx: Context) -> float:
    """Gradient of the widest tensor, two hidden gradients, the gathered input; the down-projection's input is free."""
    model, layer = job.model, unit.layer
    if layer is None:
        return 0.0
    h, t = model.hidden_size, ctx.tokens
    hidden = 2 * ctx.width * t * h / ctx.sp
    gathered = ctx.width * t * h if ctx.sp > 1 else 0.0
    gates = 2 if model.gated else 1
    if layer.feed_forward == "moe" and model.moe is not None:
        rows, width = routed_rows(model.moe, ctx), model.moe.moe_intermediate_size / ctx.etp
        return hidden + gathered + ctx.width * rows * ((gates - 1) * width + h)
    return hidden + gathered + ctx.width * t * (gates - 1) * layer.intermediate_size / ctx.tp


def chunk_logits(job: Job, chunk: Chunk) -> tuple[float, float, float]:
    """Bytes kept, bytes more at the peak of the loss, and bytes it leaves cached; each MTP depth keeps its own logits.

    A kernel that casts 2-byte logits holds them beside their fp32 copy; fp32 logits make that copy, and the gradient,
    2 bytes wider.
    """
    if not chunk.head:
        return 0.0, 0.0, 0.0
    ctx = context(job)
    traits, loss = job.software.traits, job.plan.loss
    logits = ctx.tokens * padded_vocab(job.model, job.software, ctx.tp) / (ctx.tp if loss.vocab_parallel else 1)
    width = BYTES[loss.logits_dtype]
    wider = width - BYTES["bf16"]
    piece, gathered = (
        traits.loss_peak_bytes / ctx.loss_pieces * logits,
        BYTES["fp32"] * ctx.tokens * job.model.hidden_size,
    )
    if loss.kernel == "chunked":
        # A piece's logits, and the fp32 gradient of hidden states that pieces add to (torchtitan's GradAccumulator).
        return piece * (1 + chunk.num_mtp_layers), gathered, 0.0
    by_kernel = {
        "eager": (traits.loss_kept_bytes, traits.loss_peak_bytes + (0 if traits.loss_cached_bytes else wider)),
        "fused": (traits.fused_loss_kept_bytes, traits.fused_loss_peak_bytes + wider),
        "te": (width, width),
        "liger": (width, width),
    }
    kept, peak = by_kernel[loss.kernel]
    cached = traits.loss_cached_bytes if loss.kernel == "eager" and not wider else 0.0
    return kept * logits * (1 + chunk.num_mtp_layers), max(0.0, peak - kept) * logits, cached * logits


def stage_units(job: Job, chunks: Iterable[Chunk]) -> tuple[Unit, ...]:
    """The distinct units of a stage."""
    return tuple(dict.fromkeys(unit for chunk in dict.fromkeys(chunks) for unit, _ in units(job, chunk)))


def placeholder_bytes(job: Job, held: tuple[Unit, ...]) -> float:
    """Transformer Engine's dummy weight gradients: 2 B of each distinct local matrix shape of a stage, never freed."""
    if not _has_placeholders(job):
        return 0.0
    return 2 * sum({size for unit in held if unit.layer is not None for size in _matrix_sizes(job, unit)})


def _has_placeholders(job: Job) -> bool:
    return job.software.traits.weight_gradient_placeholders and job.software.transformer_impl == "te"


def largest_tensor(job: Job, held: tuple[Unit, ...]) -> float:
    """Parameters of the largest dense matrix on a rank: what a shard of whole tensors holds at least."""
    parallel = job.plan.parallel
    weights = (weight for unit in held for weight in unit_weights(job, unit) if weight.shard != "expert")
    return max((local_count(weight, parallel.tp) for weight in weights), default=0.0)


def _matrix_sizes(job: Job, unit: Unit) -> set[float]:
    """Local element counts of the matrices Transformer Engine multiplies; query, key and value are one matrix."""
    parallel = job.plan.parallel
    projection, sizes = 0.0, set()
    for weight in unit_weights(job, unit):
        if weight.cols == 1 or weight.module in ("router", "norm"):
            continue
        divided = {"tp": parallel.tp, "expert": parallel.etp, "vocab": parallel.tp}.get(weight.shard, 1)
        size = weight.rows * weight.cols / divided
        if weight.module == "attention" and weight.name in ("query", "key", "value"):
            projection += size
        else:
            sizes.add(size)
    return sizes | ({projection} if projection else set())


def fsdp_buffers(job: Job, held: tuple[Unit, ...]) -> float:
    """Gathered layers and the gradient of one on its way to its shards.

    FSDP holds two layers and, throughout, its root group of embedding and head; XLA gathers matrix by matrix, the next
    while one is used, and the head for the loss alone.
    """
    plan, traits = job.plan, job.software.traits
    if not plan.sharding.shards_parameters:
        return 0.0
    layers = [unit for unit in held if unit.layer is not None]
    largest = max((unit_parameters(job, unit).total for unit in layers), default=0.0)
    reduce = BYTES[plan.precision.grad_reduce]
    if plan.parallel.pp > 1 and traits.unsharded_under_pipeline:
        return reduce * largest
    if traits.kept_tensors == "xla":
        matrix = max((size for unit in layers for size in _matrix_sizes(job, unit)), default=0.0)
        return 2 * 2.0 * matrix + reduce * matrix
    return 2 * 2.0 * largest + reduce * largest + 2.0 * _ends(job, held)


def reduction_bytes(job: Job, held: tuple[Unit, ...]) -> float:
    """What the last gradients hold on their way, with nothing in flight.

    FSDP reduces its root group last: unsharded bf16 gradients and the input of the reduction in its own dtype.
    Gradients that are not reduced in the buffer they accumulate in pass through one bucket.
    """
    plan, traits = job.plan, job.software.traits
    if plan.sharding.shards_parameters:
        root = 0.0 if traits.kept_tensors == "xla" else _ends(job, held)
        return (2.0 + BYTES[plan.precision.grad_reduce]) * root
    return 0.0 if traits.one_gradient_buffer else traits.gradient_bucket


def head_bytes(job: Job, held: tuple[Unit, ...]) -> float:
    """What the head holds beside the logits: its weights where XLA gathers them for the loss, or the dummy gradient
    that Megatron's own linear layer makes and drops."""
    heads = [unit for unit in held if unit.kind == "head"]
    if not heads:
        return 0.0
    if _has_placeholders(job):
        parallel = job.plan.parallel
        return 2 * padded_vocab(job.model, job.software, parallel.tp) * job.model.hidden_size / parallel.tp
    if not job.plan.sharding.shards_parameters:
        return 0.0
    if job.software.traits.kept_tensors != "xla":
        return _pieces_gradient(job, heads)
    tied = job.model.tie_word_embeddings
    return 2.0 * sum(unit_parameters(job, unit).total for unit in heads) if not tied else 2.0 * _ends(job, held)


def _pieces_gradient(job: Job, heads: list[Unit]) -> float:
    """What the pieces of a chunked loss add to beside each new gradient, unsharded and in the dtype of the reduction
    until the last (torchtitan components/loss.py; FSDP2 accumulates in its reduce dtype)."""
    if job.plan.loss.kernel != "chunked":
        return 0.0
    return (2.0 + BYTES[job.plan.precision.grad_reduce]) * sum(unit_parameters(job, unit).total for unit in heads)


def _ends(job: Job, held: tuple[Unit, ...]) -> float:
    """Parameters of embedding and head on a rank."""
    return sum(unit_parameters(job, unit).total for unit in held if unit.layer is None)
