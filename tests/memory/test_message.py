"""Out-of-memory messages as people posted them, in every wording since 2019."""

from __future__ import annotations

import pytest

from windtunnel.errors import FormatError
from windtunnel.memory.message import read_message

GIB, MIB = 2**30, 2**20

MEGATRON_525 = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 786.00 MiB (GPU 0; 31.74 GiB total capacity; "
    "28.82 GiB already allocated; 577.12 MiB free; 29.97 GiB reserved in total by PyTorch) If reserved memory is >> "
    "allocated memory try setting max_split_size_mb to avoid fragmentation."
)
"""github.com/NVIDIA/Megatron-LM/issues/525"""
TORCH_16417 = (
    "CUDA out of memory. Tried to allocate 12.50 MiB (GPU 0; 10.92 GiB total capacity; 8.57 MiB already allocated; "
    "9.28 GiB free; 4.68 MiB cached)"
)
"""github.com/pytorch/pytorch/issues/16417, torch 1.0"""
NEW = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 22.78 GiB. GPU 0 has a total capacity of 31.47 GiB "
    "of which 12.73 GiB is free. Including non-PyTorch memory, this process has 18.73 GiB memory in use. Of the "
    "allocated memory 9.08 GiB is allocated by PyTorch, and 9.35 GiB is reserved by PyTorch but unallocated."
)
"""github.com/murong-xu/CADS/issues/4, torch 2.5"""
HIP = (
    "HIP out of memory. Tried to allocate 432.00 MiB. GPU 0 has a total capacity of 15.92 GiB of which 7.12 GiB is "
    "free. Of the allocated memory 8.08 GiB is allocated by PyTorch, and 321.96 MiB is reserved by PyTorch but "
    "unallocated."
)
"""github.com/Comfy-Org/ComfyUI/issues/9529"""
HIP_OLD = (
    "RuntimeError: HIP out of memory. Tried to allocate 576.00 MiB (GPU 3; 15.98 GiB total capacity; 15.83 GiB already "
    "allocated; 0 bytes free; 15.84 GiB reserved in total by PyTorch)"
)
"""github.com/salesforce/CodeGen2/issues/3"""
MISSPELT = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 32.00 MiB. GPU 0 has a total capacty of 4.00 "
    "GiB of which 41.56 MiB is free. Including non-PyTorch memory, this process has 3.44 GiB memory in use. Of the "
    "allocated memory 2.58 GiB is allocated by PyTorch, and 1.90 MiB is reserved by PyTorch but unallocated."
)
"""MyGirlGPT, issue 11: torch 2.1 misspelt capacity."""
TWO = (
    "CUDA out of memory. Tried to allocate 148.00 MiB. GPU 0 has a total capacity of 31.60 GiB of which 87.44 MiB is "
    "free. Process 441650 has 30.51 GiB memory in use. Process 449657 has 1022.00 MiB memory in use. Of the allocated "
    "memory 594.01 MiB is allocated by PyTorch, and 5.99 MiB is reserved by PyTorch but unallocated."
)
"""github.com/Alibaba-NLP/ZeroSearch/issues/11: the second process is another one's"""


@pytest.mark.parametrize(
    ("text", "requested", "capacity", "free", "in_use", "allocated", "reserved"),
    [
        (MEGATRON_525, 786 * MIB, 31.74, 577.12 / 1024, None, 28.82, 29.97),
        (TORCH_16417, 12.5 * MIB, 10.92, 9.28, None, 8.57 / 1024, 4.68 / 1024),
        (NEW, 22.78 * GIB, 31.47, 12.73, 18.73, 9.08, 9.08 + 9.35),
        (HIP, 432 * MIB, 15.92, 7.12, None, 8.08, 8.08 + 321.96 / 1024),
        (HIP_OLD, 576 * MIB, 15.98, 0.0, None, 15.83, 15.84),
        (MISSPELT, 32 * MIB, 4.0, 41.56 / 1024, 3.44, 2.58, 2.58 + 1.90 / 1024),
        (TWO, 148 * MIB, 31.6, 87.44 / 1024, 1022 / 1024, 594.01 / 1024, 600 / 1024),
    ],
    ids=["megatron 525", "torch 1.0", "torch 2.5", "hip", "hip old", "misspelt", "two processes"],
)
def test_figures(
    text: str, requested: float, capacity: float, free: float, in_use: float | None, allocated: float, reserved: float
) -> None:
    found = read_message(f"rank 3: Traceback\n  File x.py\n{text}\n")
    assert found.requested == pytest.approx(requested)
    assert found.capacity == pytest.approx(capacity * GIB)
    assert found.free == pytest.approx(free * GIB)
    assert found.in_use == (None if in_use is None else pytest.approx(in_use * GIB))
    assert found.allocated == pytest.approx(allocated * GIB)
    assert found.reserved == pytest.approx(reserved * GIB)


def test_what_follows_from_the_figures() -> None:
    found = read_message(NEW)
    assert found.needed == pytest.approx((9.08 + 22.78) * GIB)
    assert found.unused == pytest.approx(9.35 * GIB)
    assert found.outside == pytest.approx((18.73 - 9.08 - 9.35) * GIB)
    assert found.others == pytest.approx((31.47 - 12.73 - 18.73) * GIB)


def test_private_pools_of_graphs() -> None:
    text = (
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB of which 1.00 GiB is "
        "free. Including non-PyTorch memory, this process has 78.10 GiB memory in use. Of the allocated memory 70.00 "
        "GiB is allocated by PyTorch, with 3.50 GiB allocated in private pools (e.g., CUDA Graphs), and 1.20 GiB is "
        "reserved by PyTorch but unallocated."
    )
    found = read_message(text)
    assert found.pools == 3.5 * GIB
    assert found.allocated == 70 * GIB


@pytest.mark.parametrize("text", ["", "it just stopped", "CUDA error: an illegal memory access was encountered"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(FormatError, match="Tried to allocate"):
        read_message(text)


def test_a_bare_request_is_enough() -> None:
    found = read_message("Tried to allocate 1.96 GiB")
    assert (found.requested, found.capacity, found.needed) == (pytest.approx(1.96 * GIB), None, None)


def test_of_several_ranks_the_one_that_needed_most() -> None:
    def message(rank: int, asked: float, held: float) -> str:
        return (
            f"[rank{rank}]: OutOfMemoryError: CUDA out of memory. Tried to allocate {asked} GiB. GPU {rank} has a "
            f"total capacity of 79.11 GiB of which 0.21 GiB is free. Including non-PyTorch memory, this process has "
            f"78.88 GiB memory in use. Of the allocated memory {held} GiB is allocated by PyTorch, and 0.74 GiB is "
            "reserved by PyTorch but unallocated."
        )

    found = read_message("\n".join([message(3, 1.96, 73.15), message(5, 3.96, 76.15), message(1, 9.0, 60.0)]))
    assert found.requested == pytest.approx(3.96 * GIB)
    assert found.needed == pytest.approx(80.11 * GIB)


def test_expandable_segments_say_the_same_words() -> None:
    """torch 2.5 with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: nothing is left between the blocks."""
    found = read_message(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. GPU 3 has a total capacity of 79.11 "
        "GiB of which 1.21 GiB is free. Process 1 has 77.88 GiB memory in use. Of the allocated memory 75.85 GiB is "
        "allocated by PyTorch, and 41.31 MiB is reserved by PyTorch but unallocated. If reserved but unallocated "
        "memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
    )
    assert found.unused == pytest.approx(41.31 * MIB)
    assert found.in_use is None
    assert found.held == pytest.approx((79.11 - 1.21) * GIB)


def test_xla_on_a_tpu() -> None:
    found = read_message(
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory "
        "in memory space hbm. Used 38.20G of 31.25G hbm. Exceeded hbm capacity by 6.95G."
    )
    assert found.needed == pytest.approx(38.2 * GIB)
    assert found.capacity == pytest.approx(31.25 * GIB)
    assert found.reserved is None


def test_xla_while_it_runs() -> None:
    found = read_message("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 34359738368 bytes.")
    assert (found.requested, found.capacity) == (32 * GIB, None)


@pytest.mark.parametrize(
    "text", ["NCCL error: ncclUnhandledCudaError: Cuda failure 2 'out of memory'", "CUDA error: out of memory"]
)
def test_messages_without_figures_are_told_where_their_memory_lies(text: str) -> None:
    with pytest.raises(FormatError, match="outside the allocator"):
        read_message(text)
