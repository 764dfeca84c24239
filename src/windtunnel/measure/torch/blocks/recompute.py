"""What a backward re-executes: whole pieces, one result, or all but every second matrix product."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

aten = torch.ops.aten
_SAVED = {
    aten.mm.default,
    aten._scaled_dot_product_flash_attention.default,
    aten._scaled_dot_product_flash_attention_for_cpu.default,
    aten._scaled_dot_product_efficient_attention.default,
    aten._scaled_dot_product_cudnn_attention.default,
}


def again(run: Callable[..., Any], *arguments: Any, when: bool) -> Any:
    """``run(*arguments)``; its intermediate results are formed anew in backward if ``when``."""
    if not when:
        return run(*arguments)
    return checkpoint(run, *arguments, use_reentrant=False, preserve_rng_state=False)


class EverySecondProduct:
    """Keeps attention and every second matrix product and re-executes the rest: torchtitan's selective policy per op.

    ``kept`` are the bytes of the last forward's cached results by storage: they are held outside of autograd.
    """

    def __init__(self) -> None:
        self.kept: dict[int, int] = {}

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return checkpoint(
            function, *arguments, use_reentrant=False, preserve_rng_state=False, context_fn=self._contexts
        )

    def _contexts(self) -> Any:
        self.kept = {}
        counts: dict[bool, int] = defaultdict(int)

        def policy(ctx: Any, func: Any, *_: Any, **__: Any) -> CheckpointPolicy:
            if func == aten.mm.default:
                counts[ctx.is_recompute] += 1
            if func not in _SAVED or (func == aten.mm.default and counts[ctx.is_recompute] % 2 == 0):
                return CheckpointPolicy.PREFER_RECOMPUTE
            if not ctx.is_recompute:
                self._note(ctx.op_output)
            return CheckpointPolicy.MUST_SAVE

        return create_selective_checkpoint_contexts(policy)

    def _note(self, output: Any) -> None:
        for tensor in output if isinstance(output, tuple) else (output,):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                self.kept[storage._cdata] = storage.nbytes()


def discard(results: Sequence[Tensor], consumer: Tensor, recipe: Callable[[], Sequence[Tensor]]) -> None:
    """Free the storages of ``results``, which backward of ``consumer`` reads, and fill them anew when it begins.

    Writing to the storage leaves the version counter alone, as Megatron-core's checkpoint without output does.
    """
    storages = [result.untyped_storage() for result in results]
    sizes = [storage.nbytes() for storage in storages]
    for storage in storages:
        storage.resize_(0)

    def refill(_: Tensor) -> None:
        with torch.no_grad():
            for storage, size, formed in zip(storages, sizes, recipe(), strict=True):
                storage.resize_(size)
                storage.copy_(formed.untyped_storage())

    consumer.register_hook(refill)
