"""What blocks hold beyond their tensors, against an allocator of a few lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.memory.blocks import MIB, rest


@pytest.mark.parametrize(
    ("size", "expected"),
    [(0.5, 0), (6, 0), (6.5, 0.5 / 3), (9.5, 1 / 2), (9, 0), (10, 0), (11, 1), (11.5, 0.5), (12, 0), (23, 1)],
)
def test_rests(size: float, expected: float) -> None:
    """MiB: from 10 on steps of two; below, what is left of 20; more than one is cut off."""
    assert rest(size * MIB) == pytest.approx(expected * MIB)


@given(size=st.integers(2 * 1024, 64 * 1024), segments=st.integers(1, 4))
def test_full_segments_hold_their_tensors_and_rests(size: int, segments: int) -> None:
    """Tensors of ``size`` KiB, as many as fill some segments of an empty allocator."""
    bytes_ = size * 1024
    each = 20 * MIB // bytes_ if bytes_ < 10 * MIB else 1
    blocks = [block for _ in range(segments) for block in segment_of(bytes_, each)]
    assert sum(blocks) == pytest.approx(segments * each * (bytes_ + rest(bytes_)))


def segment_of(size: int, number: int) -> list[int]:
    """Blocks that ``number`` tensors get in one new segment, cut off its front one after the other."""
    free = 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
    blocks = []
    for _ in range(number):
        block = size if free - size > MIB else free
        blocks.append(block)
        free -= block
    return blocks
