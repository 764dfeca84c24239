"""Standard grids of shapes: measured once on a machine, they serve every job by interpolation."""

from __future__ import annotations

from itertools import product

from windtunnel.cost.profile import key
from windtunnel.cost.profile_keys import op_key
from windtunnel.measure.task import Task
from windtunnel.ops.op import Attention, Gemm, Op, Phase

SUITES = ("standard", "smoke")

PASSES: tuple[Phase, ...] = ("F", "B", "W")


def suite(name: str) -> tuple[Task, ...]:
    """The tasks of a suite; ``smoke`` is a small part of ``standard`` in fp32 that a CPU finishes in seconds.

    Raises KeyError for another name.
    """
    make = {"standard": _standard, "smoke": _smoke}[name]
    return make()


def _standard() -> tuple[Task, ...]:
    """Products of the widths of 8B to 70B models and their shards at 2k to 16k tokens, and causal attention."""
    gemms = product((2048, 4096, 8192, 16384), (1024, 4096, 14336), (1024, 4096, 14336), PASSES)
    attentions = product((2048, 4096, 8192, 16384), (8, 32), (64, 128))
    return (
        *(_task(_gemm(m, n, k, phase, "bf16")) for m, n, k, phase in gemms),
        *(_task(_attention(s, heads, d, phase)) for s, heads, d in attentions for phase in PASSES[:2]),
        *(_optimizer(count, "bf16") for count in (10_000_000, 100_000_000, 1_000_000_000)),
    )


def _smoke() -> tuple[Task, ...]:
    return (
        *(_task(_gemm(m, n, 256, phase, "fp32")) for m, n, phase in product((128, 512), (256, 512), PASSES)),
        *(_task(_attention(128, 4, 64, phase)) for phase in PASSES[:2]),
        _optimizer(1_000_000, "fp32"),
    )


def _gemm(m: int, n: int, k: int, phase: Phase, compute: str) -> Gemm:
    """Forward (m, n, k); its gradients have the sizes of a linear layer's."""
    sizes = {"F": (m, n, k), "B": (m, k, n), "W": (n, k, m)}[phase]
    rows, cols, depth = sizes
    return Gemm(name="gemm", phase=phase, m=rows, n=cols, k=depth, compute=compute)  # type: ignore[arg-type]


def _attention(sequence: int, heads: int, width: int, phase: Phase) -> Attention:
    return Attention(name="attention", phase=phase, batch=1, heads=heads, sequence=sequence, qk_dim=width, v_dim=width)


def _task(described: Op) -> Task:
    named = op_key(described)
    assert named is not None
    shape = " ".join(f"{name} {size:g}" for name, size in named.shape)
    return Task(
        keys=(named,),
        kernel="windtunnel.measure.torch.kernels:op",
        arguments=(described,),
        label=f"{named.op} {named.phase} {shape}",
    )


def _optimizer(count: int, dtype: str) -> Task:
    named = key("optimizer/adamw", "step", dtype, {"parameters": count})
    return Task(
        keys=(named,),
        kernel="windtunnel.measure.torch.kernels:optimizer",
        arguments=(named, count),
        label=f"adamw over {count:,} parameters",
    )
