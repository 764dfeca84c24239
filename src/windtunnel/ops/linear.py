"""A linear layer as its three GEMMs, the casts of a quantized recipe, and the collectives of tensor parallelism."""

from __future__ import annotations

from dataclasses import replace

from windtunnel.dtypes import Compute, is_quantized
from windtunnel.ops.context import Context
from windtunnel.ops.op import Collective, Gemm, Kept, Op, Stream


def linear(
    name: str,
    ctx: Context,
    m: float,
    n: float,
    k: float,
    *,
    modules: frozenset[str] = frozenset(),
    keeps: tuple[Kept, ...] = (),
    compute: Compute | None = None,
) -> tuple[Op, ...]:
    """Forward (m, n, k), input gradient (m, k, n), weight gradient (n, k, m): backward is twice forward in FLOPs."""
    recipe = compute or ctx.compute
    gemms: tuple[Op, ...] = (
        Gemm(name=name, phase="F", m=m, n=n, k=k, compute=recipe, modules=modules, keeps=keeps),
        Gemm(name=name, phase="B", m=m, n=k, k=n, compute=recipe),
        Gemm(name=name, phase="W", m=n, n=k, k=m, compute=recipe, accumulates_fp32=False),
    )
    return gemms + casts(name, recipe, m * k, m * n, modules=modules)


def casts(
    name: str, compute: Compute, inputs: float, outputs: float, *, modules: frozenset[str] = frozenset()
) -> tuple[Op, ...]:
    """Quantizing passes before a GEMM: its input in forward, its output gradient in backward.

    ``bytes_moved`` counts elements; the recipe's bytes per element are a constant of the cost source.
    """
    if not is_quantized(compute):
        return ()
    return (
        Stream(name=f"{name}_cast:{compute}", phase="F", kind="cast", bytes_moved=inputs, modules=modules),
        Stream(name=f"{name}_cast:{compute}", phase="B", kind="cast", bytes_moved=outputs),
    )


def stream(
    name: str,
    ctx: Context,
    forward: float,
    backward: float,
    *,
    modules: frozenset[str] = frozenset(),
    keeps: tuple[Kept, ...] = (),
) -> tuple[Op, ...]:
    """A memory-bound op of ``forward`` and ``backward`` elements moved, at the width of an activation."""
    eager = not ctx.fused_kernels
    return (
        Stream(name=name, phase="F", bytes_moved=forward * ctx.width, eager=eager, modules=modules, keeps=keeps),
        Stream(name=name, phase="B", bytes_moved=backward * ctx.width, eager=eager),
    )


def enter_region(
    name: str, ctx: Context, width: float, out: float, *, modules: frozenset[str] = frozenset()
) -> tuple[Op, ...]:
    """Into a tensor-parallel region: ``width`` elements a token, which a GEMM turns into ``out`` local ones.

    With sequence parallelism: gather the sequence in forward, piece by piece before its GEMM if the software overlaps
    them; in backward reduce-scatter the input gradient beside the weight gradient and gather the input again beside the
    input gradient, where the framework does not keep what it gathered. Without it: an all-reduce of the input gradient.
    """
    if ctx.tp == 1:
        return ()
    size = ctx.tokens * width * ctx.width
    gradient = Gemm(name=name, phase="W", m=out, n=width, k=ctx.tokens, compute=ctx.compute)
    if not ctx.sequence_parallel:
        beside = gradient if ctx.asynchronous_tp else None
        return (Collective(name=name, phase="B", collective="all_reduce", group="tp", size=size, beside=beside),)
    gathered = size / 2 if ctx.gather_in_fp8 else size
    forward = Collective(
        name=name,
        phase="F",
        collective="all_gather",
        group="tp",
        size=gathered,
        modules=modules,
        beside=Gemm(name=name, phase="F", m=ctx.tokens, n=out, k=width, compute=ctx.compute),
        pieces=ctx.tp,
    )
    scatter = Collective(
        name=name,
        phase="B",
        collective="reduce_scatter",
        group="tp",
        size=size,
        beside=gradient if ctx.asynchronous_tp else None,
    )
    if ctx.keeps_gathered:
        return forward, scatter
    again = Collective(
        name=name,
        phase="W",
        collective="all_gather",
        group="tp",
        size=gathered,
        beside=Gemm(name=name, phase="B", m=ctx.tokens, n=width, k=out, compute=ctx.compute),
    )
    return forward, scatter, again


def leave_region(
    name: str, ctx: Context, width: float, inner: float, *, modules: frozenset[str] = frozenset()
) -> tuple[Op, ...]:
    """Out of a tensor-parallel region, of a GEMM that turns ``inner`` local elements a token into ``width``:
    reduce-scatter or all-reduce in forward, gather of the gradient in backward."""
    if ctx.tp == 1:
        return ()
    size = ctx.tokens * width * ctx.width
    forward = Gemm(name=name, phase="F", m=ctx.tokens, n=width, k=inner, compute=ctx.compute)
    if not ctx.sequence_parallel:
        return (Collective(name=name, phase="F", collective="all_reduce", group="tp", size=size, modules=modules),)
    gathered = size / 2 if ctx.gather_in_fp8 else size
    return (
        Collective(
            name=name,
            phase="F",
            collective="reduce_scatter",
            group="tp",
            size=size,
            modules=modules,
            beside=forward,
            pieces=ctx.tp,
        ),
        Collective(
            name=name,
            phase="B",
            collective="all_gather",
            group="tp",
            size=gathered,
            beside=replace(forward, phase="B", n=inner, k=width),
            pieces=ctx.tp,
        ),
    )
