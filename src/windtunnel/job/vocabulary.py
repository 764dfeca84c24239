"""The vocabulary as a job pads it."""

from __future__ import annotations

from math import ceil

from windtunnel.job.model import ModelSpec
from windtunnel.job.software import Software


def padded_vocab(model: ModelSpec, software: Software, tp: int) -> int:
    """Vocabulary padded to the model's or the framework's multiple, times tp where the framework does so."""
    traits = software.traits
    step = (model.vocab_multiple or traits.vocab_multiple) * (tp if traits.vocab_multiple_times_tp else 1)
    return ceil(model.vocab_size / step) * step
