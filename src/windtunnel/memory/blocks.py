"""What a caching allocator counts as allocated beyond the bytes of a long-lived tensor.

PyTorch's allocator cuts a tensor out of a segment and counts the whole block: a rest of no more than 1 MiB stays with
it. Source: pytorch/pytorch c10/cuda/CUDACachingAllocator.cpp, get_allocation_size, should_split, alloc_found_block.
Expandable segments cut off every rest.
"""

from __future__ import annotations

MIB = 1024**2
SMALLEST_REST = 1 * MIB
"""A larger rest becomes a block of its own."""
SHARED_SEGMENT = 20 * MIB
"""Tensors of 1 to 10 MiB share segments of this size."""
OWN_SEGMENT = 10 * MIB
"""Tensors from here on get a segment of their own, of whole steps of ``STEP``."""
STEP = 2 * MIB


def rest(size: float) -> float:
    """Bytes that the block of a tensor of ``size`` bytes holds beyond it; where tensors of one size share a segment,
    each one's part of what the last of them gets.

    Alignment to 512 bytes is left out, and so are tensors below 1 MiB, whose segments hold no more than 2.
    """
    if size <= SMALLEST_REST:
        return 0.0
    if size >= OWN_SEGMENT:
        left = -size % STEP
        return left if left <= SMALLEST_REST else 0.0
    together, left = divmod(SHARED_SEGMENT, size)
    return left / together if left <= SMALLEST_REST else 0.0
