"""Counts what autograd keeps for backward, storage by storage."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from windtunnel.measure.torch.blocks.recompute import EverySecondProduct


def kept_bytes(
    run: Callable[[], Tensor], ignored: Iterable[Tensor] = (), products: EverySecondProduct | None = None
) -> int:
    """Bytes of the distinct storages a forward keeps, those of ``ignored`` tensors (parameters, tables, labels) apart.

    ``products`` are results a selective checkpoint caches. Tensors are held until the count is done, or an address
    would be used again and taken for a storage already seen.
    """
    skip = {tensor.untyped_storage()._cdata for tensor in ignored}
    held: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        held.setdefault(tensor.untyped_storage()._cdata, tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = run()
    sizes = {key: tensor.untyped_storage().nbytes() for key, tensor in held.items()}
    sizes |= products.kept if products is not None else {}
    del result
    return sum(size for key, size in sizes.items() if key not in skip)
