"""How seconds and bytes of stages become those of a step. Every function takes numbers or numpy arrays alike, so the
same formulas explain one plan and score a hundred thousand."""

from __future__ import annotations

from windtunnel.elementwise import Number, maximum, minimum
from windtunnel.memory.states import States


def finish(pipeline_end: Number, addition: Number, jitter: Number) -> Number:
    """Seconds at which a stage is done: its pipeline, then what data parallelism and the optimizer add."""
    return (pipeline_end + addition) * jitter


def bound(num_microbatches: Number, fill: Number, stage: Number, after: Number, jitter: Number) -> Number:
    """A lower bound of the step time from one stage.

    No order lets a stage start before the first micro-batch has come through all chunks before its first one
    (``fill``), nor do less than every micro-batch (``stage`` seconds each). ``after`` follows: its own addition, or
    its last input gradient on its way through the chunks before it and the first stage's addition.
    """
    return (fill + num_microbatches * stage + after) * jitter


def estimate(
    num_microbatches: Number,
    slowest: Number,
    all_stages: Number,
    num_stages: Number,
    virtual_stages: Number,
    transfer: Number,
) -> Number:
    """Pipeline seconds of 1F1B and its interleaved form: m·t_max + (Σ t − t_max)/v + 2(p−1)·transfer."""
    return num_microbatches * slowest + (all_stages - slowest) / virtual_stages + 2 * (num_stages - 1) * transfer


def allocated(held: States, resident: Number, alive: Number) -> Number:
    """Bytes in the allocator of a stage at one moment: static state, what lives all step, what is alive now."""
    return held.weights + held.gradients + held.master + held.moments + held.gathered + resident + alive


def reserved(allocated_bytes: Number, cached: Number, ratio: Number, room: Number) -> Number:
    """Bytes the allocator holds: ``ratio`` times what is allocated and what lies ``cached`` between it, in blocks of
    the wrong size. Whole blocks are given back before an allocation fails, so that ratio alone never outgrows
    ``room``."""
    least = allocated_bytes + cached
    return maximum(least, minimum(least * ratio, room))


def room(capacity: Number, high: Number, outside: Number) -> Number:
    """Bytes an allocator's reserve may grow to: with ``outside`` bytes beside it, and all of it at the ``high`` end of
    its residuals (a factor), the device is full."""
    return capacity / high - outside


def overhead(allocated_bytes: Number, share: Number, fixed: Number) -> Number:
    """Bytes outside the allocator; never negative."""
    return maximum(share * allocated_bytes + fixed, 0.0)
