"""Linear-attention mixers in chunked form: Mamba-2, gated DeltaNet, lightning attention.

One kernel of scan and gated norm keeps the projection, the convolved inputs and a state a chunk, and forms the rest
anew in backward, as published kernels do.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import conv1d, pad, sigmoid, silu, softplus

from windtunnel.job.model import LinearAttention
from windtunnel.ops.linear_attention import CHUNK, convolution_width, projection_width
from windtunnel.ops.sizes import Sizes


class LinearMixer(nn.Module):
    """Input projection, causal convolution, scan with gated output, output projection."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        assert sizes.linear is not None
        spec = sizes.linear
        self.spec = spec
        convolved = convolution_width(spec)
        self.input = nn.Linear(sizes.hidden, projection_width(spec), bias=False)
        self.output = nn.Linear(spec.inner_size, sizes.hidden, bias=False)
        self.kernel = nn.Parameter(torch.randn(convolved, 1, spec.conv_width) * 0.3) if convolved else None

    def forward(self, x: Tensor) -> Tensor:
        projected = self.input(x)
        taken = self.spec.inner_size + 2 * self.spec.key_size
        mixed = projected[..., :taken]
        if self.kernel is not None:
            mixed = _Convolution.apply(projected, self.kernel, taken)
        out: Tensor = self.output(_ScanAndGate.apply(mixed, projected, self.spec))
        return out


class _Convolution(torch.autograd.Function):
    """silu(causal depthwise convolution) of the first ``taken`` columns; keeps the projection it reads."""

    @staticmethod
    def forward(ctx: Any, projected: Tensor, kernel: Tensor, taken: int) -> Tensor:
        ctx.save_for_backward(projected, kernel)
        ctx.taken = taken
        return _convolved(projected[..., :taken], kernel)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        projected, kernel = (saved.detach().requires_grad_() for saved in ctx.saved_tensors)
        with torch.enable_grad():
            result = _convolved(projected[..., : ctx.taken], kernel)
        into, of_kernel = torch.autograd.grad(result, (projected, kernel), gradients[0])
        return into, of_kernel, None


def _convolved(x: Tensor, kernel: Tensor) -> Tensor:
    width = kernel.shape[-1]
    padded = pad(x.transpose(1, 2), (width - 1, 0))
    return silu(conv1d(padded, kernel, groups=kernel.shape[0])).transpose(1, 2).contiguous()


class _ScanAndGate(torch.autograd.Function):
    """The recurrence and its gated output; keeps its inputs and the fp32 state at the start of every chunk."""

    @staticmethod
    def forward(ctx: Any, mixed: Tensor, projected: Tensor, spec: LinearAttention) -> Tensor:
        gated, states = _run(mixed, projected, spec)
        ctx.save_for_backward(mixed, projected, states)
        ctx.spec = spec
        return gated

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        mixed, projected, _ = ctx.saved_tensors
        mixed, projected = mixed.detach().requires_grad_(), projected.detach().requires_grad_()
        with torch.enable_grad():
            gated, _ = _run(mixed, projected, ctx.spec)
        of_mixed, of_projected = torch.autograd.grad(gated, (mixed, projected), gradients[0])
        return of_mixed, of_projected, None


def _run(mixed: Tensor, projected: Tensor, spec: LinearAttention) -> tuple[Tensor, Tensor]:
    """Gated output [b, s, inner] in the input's dtype and states [b, chunks, heads, state, head] in fp32."""
    b, s, _ = mixed.shape
    values, keys, queries = mixed.float().split((spec.inner_size, spec.key_size, spec.key_size), -1)
    repeats = spec.num_heads // spec.num_groups
    v = values.view(b, s, spec.num_heads, spec.head_dim)
    k, q = (
        part.reshape(b, s, spec.num_groups, spec.state_dim).repeat_interleave(repeats, 2) * spec.state_dim**-0.5
        for part in (keys, queries)
    )
    gate = projected[..., -spec.inner_size :].float()
    rates = projected[..., spec.inner_size + 2 * spec.key_size : -spec.inner_size].float()
    decay, strength = _rates(rates, spec, (b, s))
    out, states = _scan(q, k, v, decay, strength, delta=spec.kind == "gated_deltanet")
    flat = out.reshape(b, s, -1)
    normal = flat * torch.rsqrt(flat.square().mean(-1, keepdim=True) + 1e-5)
    return (normal * silu(gate)).to(mixed.dtype), states


def _rates(rates: Tensor, spec: LinearAttention, shape: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Log-decay and input strength of every token and head."""
    if spec.kind == "lightning":
        fixed = -torch.arange(1, spec.num_heads + 1, device=rates.device) / spec.num_heads
        return fixed.expand(*shape, -1), torch.ones(*shape, spec.num_heads, device=rates.device)
    if spec.kind == "mamba2":
        step = softplus(rates)
        return -step, step
    decay, strength = rates.chunk(2, -1)
    return -softplus(decay), sigmoid(strength)


def _scan(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, strength: Tensor, *, delta: bool) -> tuple[Tensor, Tensor]:
    """S ← a·S + β·k⊗v chunk by chunk, o = q·S; the delta rule first takes away what S already answers to k."""
    state = q.new_zeros(q.shape[0], q.shape[2], q.shape[3], v.shape[3])
    outs, states = [], []
    for begin in range(0, q.shape[1], CHUNK):
        piece = (tensor[:, begin : begin + CHUNK].transpose(1, 2) for tensor in (q, k, v, decay, strength))
        states.append(state)
        out, state = _chunk(state, *piece, delta=delta)
        outs.append(out.transpose(1, 2))
    return torch.cat(outs, 1), torch.stack(states, 1)


def _chunk(
    state: Tensor, q: Tensor, k: Tensor, v: Tensor, decay: Tensor, strength: Tensor, *, delta: bool
) -> tuple[Tensor, Tensor]:
    """Output and next state of one chunk [b, heads, c, ·], scores inside it and the state before it."""
    total = decay.cumsum(-1)
    fade = (total[..., :, None] - total[..., None, :]).tril().exp().tril()
    if delta:
        # Solve (I + L) u = β (v − k·S): every token's correction sees those of the tokens before it.
        lower = ((k @ k.transpose(-1, -2)) * fade * strength[..., None]).tril(-1)
        known = strength[..., None] * (v - total.exp()[..., None] * (k @ state))
        size = lower.shape[-1]
        added = torch.linalg.solve_triangular(
            lower + torch.eye(size, device=q.device, dtype=q.dtype), known, upper=False, unitriangular=True
        )
    else:
        added = strength[..., None] * v
    inside = ((q @ k.transpose(-1, -2)) * fade) @ added
    out = inside + total.exp()[..., None] * (q @ state)
    left = (total[..., -1:] - total).exp()[..., None]
    return out, total[..., -1].exp()[..., None, None] * state + (left * k).transpose(-1, -2) @ added
