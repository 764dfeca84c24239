"""Whole units timed pass by pass: forward, backward at once, and backward split as zero-bubble schedules split it."""

from __future__ import annotations

from collections import defaultdict

import torch
from torch import Tensor, nn
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight

from windtunnel.cost.profile import Pass
from windtunnel.measure.torch.blocks.build import build, inputs
from windtunnel.measure.torch.clock import Clock
from windtunnel.measure.torch.sharded import sharded
from windtunnel.ops.sizes import Sizes

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class UnitKernel:
    """One unit, ours or ``block``, with random operands; not ``whole``: under FSDP, which never splits its backward.

    Every call is one micro-batch, gradients accumulate as between micro-batches.
    """

    def __init__(self, sizes: Sizes, clock: Clock, block: nn.Module | None = None, *, whole: bool = True) -> None:
        dtype = DTYPES[sizes.dtype]
        self._clock, self._whole = clock, whole
        module = (block or build(sizes)).to(device=clock.device, dtype=dtype)
        self._block = module if whole else sharded(module, clock.device)
        self._inputs = inputs(sizes, dtype=dtype, device=clock.device)
        self._hidden = [x for x in self._inputs if x.requires_grad]
        self._weights = [weight for weight in self._block.parameters() if weight.requires_grad]

    def run(self, least: float = 0.0, *, split: bool = True) -> dict[Pass, float]:
        """Mean seconds of forward, of backward, and unless not ``split`` of backward by inputs and by weights, over
        ``least`` seconds."""
        totals: dict[Pass, float] = defaultdict(float)
        rounds = 0
        while rounds == 0 or sum(totals.values()) < least:
            rounds += 1
            for phase, seconds in self._once(split).items():
                totals[phase] += seconds
        return {phase: seconds / rounds for phase, seconds in totals.items()}

    def _once(self, split: bool) -> dict[Pass, float]:
        found: dict[Pass, float] = {}
        out, found["forward"] = self._clock.time(lambda: self._block(*self._inputs))
        gradient = torch.randn_like(out) if out.dim() else None
        _, found["backward"] = self._clock.time(lambda: torch.autograd.backward(out, gradient))
        self._forget_inputs()
        if split and self._hidden and self._whole:
            found |= self._split(gradient)
        return found

    def _split(self, gradient: Tensor | None) -> dict[Pass, float]:
        out = self._block(*self._inputs)
        gradients = None if gradient is None else [gradient]
        (_, groups), into = self._clock.time(
            lambda: stage_backward_input([out], gradients, self._hidden, iter(self._weights))
        )
        _, weight = self._clock.time(lambda: stage_backward_weight(iter(self._weights), groups))
        self._forget_inputs()
        return {"grad_input": into, "grad_weight": weight}

    def _forget_inputs(self) -> None:
        for x in self._hidden:
            x.grad = None
