"""The figures of an out-of-memory message: of CUDA or HIP, as PyTorch has written them since 2019, and of XLA."""

from __future__ import annotations

import re
from dataclasses import dataclass

from windtunnel.errors import Fault, FormatError

_UNITS = {
    "bytes": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "K": 2**10, "M": 2**20, "G": 2**30,
}  # fmt: skip
_SIZE = rf"([\d.,]+)\s*({'|'.join(_UNITS)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfMemory:
    """Bytes; None where the message does not say.

    ``reserved`` is all the allocator holds, ``allocated`` what tensors hold of it, ``pools`` the part in private pools
    of CUDA graphs; ``in_use`` is what the process holds on the device, libraries included.
    """

    requested: float
    capacity: float | None = None
    free: float | None = None
    in_use: float | None = None
    allocated: float | None = None
    reserved: float | None = None
    pools: float | None = None

    @property
    def needed(self) -> float | None:
        """Tensor bytes the step asked for when it failed: what was allocated and what was refused."""
        return None if self.allocated is None else self.allocated + self.requested

    @property
    def unused(self) -> float | None:
        """Bytes the allocator held without a tensor in them."""
        return None if self.reserved is None or self.allocated is None else max(0.0, self.reserved - self.allocated)

    @property
    def held(self) -> float | None:
        """Bytes of this process: stated, or everything that is not free."""
        if self.in_use is not None:
            return self.in_use
        return None if self.capacity is None or self.free is None else self.capacity - self.free

    @property
    def outside(self) -> float | None:
        """Bytes of this process outside the allocator: context, communicators, graphs."""
        return None if self.held is None or self.reserved is None else max(0.0, self.held - self.reserved)

    @property
    def others(self) -> float:
        """Bytes of other processes on the device."""
        if self.in_use is None or self.capacity is None or self.free is None:
            return 0.0
        return max(0.0, self.capacity - self.free - self.in_use)


def read_message(text: str) -> OutOfMemory:
    """The figures of a message, whatever stands round it; of several ranks the one that needed most.

    Raises FormatError where there is no such message.

    Until torch 2.0 ``(GPU 0; 31.74 GiB total capacity; 28.82 GiB already allocated; 577.12 MiB free; 29.97 GiB
    reserved in total by PyTorch)``; from 2.1 on sentences, with what is reserved *but unallocated*.
    """
    words = " ".join(text.split())
    starts = [match.start() for match in re.finditer(_BEGINS, words)]
    if not starts:
        rule = "no out-of-memory message of PyTorch or XLA: it says 'Tried to allocate …'"
        remedy = "quote it with its figures; NCCL, cuBLAS and the driver name none: they lie outside the allocator"
        raise FormatError(Fault("--error", words[:60], rule, remedy))
    found = [_read(words[start:end]) for start, end in zip(starts, [*starts[1:], len(words)], strict=True)]
    return max(found, key=lambda error: error.needed or error.requested)


_BEGINS = rf"(?:[Tt]ried|trying) to allocate {_SIZE}|Ran out of memory in memory space hbm"


def _read(words: str) -> OutOfMemory:
    requested = _find(words, rf"(?:[Tt]ried|trying) to allocate {_SIZE}")
    if requested is None:
        return _read_xla(words)
    allocated = _find(words, rf"{_SIZE} (?:is allocated by PyTorch|already allocated)")
    total = _find(words, rf"{_SIZE} (?:reserved in total|cached)")
    unused = _find(words, rf"{_SIZE} is reserved by PyTorch but unallocated")
    if total is None and allocated is not None and unused is not None:
        total = allocated + unused
    return OutOfMemory(
        requested=requested,
        capacity=_find(words, rf"total capaci?ty of {_SIZE}") or _find(words, rf"{_SIZE} total capacity"),
        free=_find(words, rf"{_SIZE} (?:is )?free"),
        in_use=_find(words, rf"this process has {_SIZE} memory in use") or _own_process(words, total),
        allocated=allocated,
        reserved=total,
        pools=_find(words, rf"{_SIZE} allocated in private pools"),
    )


def _read_xla(words: str) -> OutOfMemory:
    """``Used 38.20G of 31.25G hbm. Exceeded hbm capacity by 6.95G.``"""
    used, over = _find(words, rf"Used {_SIZE} of"), _find(words, rf"Exceeded hbm capacity by {_SIZE}")
    return OutOfMemory(
        requested=over or 0.0,
        capacity=_find(words, rf"of {_SIZE} hbm"),
        allocated=None if used is None else used - (over or 0.0),
    )


def _own_process(words: str, reserved: float | None) -> float | None:
    """Where several processes are listed and none is called this one: the smallest that can hold what is reserved."""
    sizes = [_bytes(*found) for found in re.findall(rf"Process \d+ has {_SIZE} memory in use", words)]
    large = [size for size in sizes if reserved is not None and size >= reserved]
    return min(large) if large and len(sizes) > 1 else None


def _find(words: str, pattern: str) -> float | None:
    found = re.search(pattern, words)
    return None if found is None else _bytes(found[1], found[2])


def _bytes(number: str, unit: str) -> float:
    return float(number.replace(",", "")) * _UNITS[unit]
