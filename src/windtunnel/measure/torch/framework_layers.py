"""What layers of other frameworks have in common: which of ours they are, and how they are timed."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from windtunnel.measure.torch.kernels import Unit, unit
from windtunnel.ops.sizes import Sizes

Make = Callable[[Sizes, str], nn.Module]
"""A framework's layer of some sizes for a device: hidden states [b, s, h] to hidden states."""


def covers(sizes: Sizes) -> bool:
    """Whether a Llama-like layer is the layer: grouped-query attention with rotary positions, RMSNorm, gated and dense,
    without norms of queries and keys or a gate, and
    with all tokens of its sequence."""
    kinds = (sizes.kind, sizes.mixer, sizes.feed_forward, sizes.norm)
    plain = sizes.gated and sizes.rope and sizes.mla is None and not sizes.mtp and sizes.shards == 1
    bare = not sizes.qk_norm and not sizes.output_gate
    return kinds == ("layer", "attention", "dense", "rmsnorm") and plain and bare


def timed(make: Make, device: str, sizes: Sizes, co_runners: int, sharded: bool) -> Unit:
    """A unit as a kernel of the harness: the framework's layer where it is the layer, our own block elsewhere."""
    return unit(device, sizes, co_runners, sharded, make(sizes, device) if covers(sizes) else None)
