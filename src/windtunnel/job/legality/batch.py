"""Batch and sequence: what must divide what."""

from __future__ import annotations

from math import lcm

from windtunnel.job.draft import Draft
from windtunnel.job.legality.violation import Violation
from windtunnel.job.legality.words import divisors, nearest, repair, values_of


def gbs(draft: Draft) -> Violation | None:
    size, batch = draft.count("batch.micro_batch_size"), draft.count("batch.global_batch_size")
    dp = draft.plan["parallel.dp"]
    if not isinstance(dp, int) or batch % (size * dp) == 0:
        return None
    unit = size * dp
    batches = [n for n in dict.fromkeys((-(-batch // unit) * unit, batch // unit * unit)) if n > 0]
    sizes = nearest(divisors(batch // dp), size) if batch % dp == 0 else ()
    return Violation(
        rule="gbs",
        message=f"global_batch_size = {batch} must be a multiple of micro_batch_size × dp = {size} × {dp} = {unit}",
        path="plan.batch.global_batch_size",
        values=values_of(draft.plan, "batch.global_batch_size", "batch.micro_batch_size", "parallel.dp"),
        repairs=(
            *(repair(batch__micro_batch_size=n) for n in sizes),
            *(repair(batch__global_batch_size=n) for n in batches),
        ),
    )


def sequence_factor(draft: Draft) -> int:
    """What must divide the sequence: cp · lcm(2 with balanced context parallelism, tp with sequence parallelism)."""
    cp, tp = draft.count("parallel.cp"), draft.count("parallel.tp")
    # Balanced causal attention gives each rank one chunk from either end of the sequence.
    halves = 2 if cp > 1 and draft.plan["context_parallel.load_balanced"] else 1
    return cp * lcm(halves, tp if draft.plan["parallel.sequence_parallel"] else 1)


def sequence(draft: Draft) -> Violation | None:
    length, factor = draft.count("batch.sequence_length"), sequence_factor(draft)
    if length % factor == 0:
        return None
    lengths = [n for n in dict.fromkeys((-(-length // factor) * factor, length // factor * factor)) if n > 0]
    return Violation(
        rule="sequence-length",
        message=(
            f"sequence_length = {length} must be a multiple of {factor}: 2 chunks on each of cp ranks with load "
            "balancing, and a share for each tp rank with sequence parallelism"
        ),
        path="plan.batch.sequence_length",
        values=values_of(
            draft.plan,
            "batch.sequence_length",
            "parallel.cp",
            "parallel.tp",
            "parallel.sequence_parallel",
            "context_parallel.load_balanced",
        ),
        repairs=tuple(repair(batch__sequence_length=n) for n in lengths),
    )


def learned_positions(draft: Draft) -> Violation | None:
    length, most = draft.count("batch.sequence_length"), draft.model.max_position_embeddings
    if draft.model.position != "learned" or most is None or length <= most:
        return None
    return Violation(
        rule="learned-positions",
        message=f"sequence_length = {length} exceeds the {most} learned positions of the model",
        path="plan.batch.sequence_length",
        values={"model.max_position_embeddings": most, **values_of(draft.plan, "batch.sequence_length")},
        repairs=(repair(batch__sequence_length=most),),
        severity="warning",
    )


RULES = (gbs, sequence, learned_positions)
