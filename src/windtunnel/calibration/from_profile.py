"""What a profile says of an accelerator's own figures: sustained shares of its peak, by kind of kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median

from windtunnel.cost.kernels.attention import attention, generation
from windtunnel.cost.kernels.gemm import gemm
from windtunnel.cost.kernels.stream import stream
from windtunnel.cost.profile import Entry, Profile
from windtunnel.dtypes import is_quantized
from windtunnel.job.cluster import Accelerator
from windtunnel.job.constants import Constants
from windtunnel.job.software import Software
from windtunnel.ops.op import Attention, Gemm, Phase, Stream

LARGE = 0.9
"""Least share of a GEMM's simulated seconds that grows with its size: below it, a shape says little of the rate."""
PHASES: dict[str, Phase] = {"forward": "F", "grad_input": "B", "grad_weight": "W"}


@dataclass(frozen=True, slots=True)
class Fit:
    """A figure of an accelerator's file: its path, the catalog's value and the fitted one, on how many entries, and the
    median relative residual before and after."""

    path: str
    old: float
    new: float
    entries: int
    residual_before: float
    residual_after: float


def fit_accelerator(
    accelerator: Accelerator, software: Software, constants: Constants, profile: Profile
) -> tuple[Fit, ...]:
    """Sustained shares of GEMMs in 16 bit, of the attention kernel that ``software`` runs and of passes over memory,
    from the entries of a profile.

    A share scales the rate, so its fit is the old one times the median of simulated over measured seconds.
    """
    kernel = generation(accelerator, software)
    forward, backward = (
        _attentions(replace(accelerator, attention=(kernel,)), software, constants, profile, phase)
        for phase in ("forward", "grad_input")
    )
    found = (
        _scaled("gemm.bf16", accelerator.gemm.bf16, _gemms(accelerator, constants, profile)),
        _scaled("attention.forward", kernel.forward, forward),
        _scaled("attention.backward", kernel.backward, backward),
        _scaled("memory_bound", accelerator.memory_bound, _streams(accelerator, constants, profile)),
    )
    return tuple(fit for fit in found if fit is not None)


def _scaled(path: str, old: float, ratios: list[float]) -> Fit | None:
    """``ratios``: simulated over measured seconds of each entry."""
    if not ratios:
        return None
    middle = median(ratios)
    before, after = (median(abs(ratio / by - 1) for ratio in ratios) for by in (1.0, middle))
    return Fit(path, old, min(old * middle, 1.0), len(ratios), before, after)


def _gemms(accelerator: Accelerator, constants: Constants, profile: Profile) -> list[float]:
    ratios = []
    for entry in _of(profile, "gemm", lambda entry: not is_quantized(entry.key.dtype)):
        sizes = dict(entry.key.shape)
        op = Gemm(
            name="gemm", phase=PHASES[entry.key.phase], m=sizes["m"], n=sizes["n"], k=sizes["k"],
            compute=entry.key.dtype,  # type: ignore[arg-type]
        )  # fmt: skip
        cost = gemm(op, accelerator, constants.gemm)
        if cost.bound == "compute" and 1 - accelerator.gemm.launch / cost.seconds > LARGE:
            ratios.append(cost.seconds / entry.seconds)
    return ratios


def _attentions(
    accelerator: Accelerator, software: Software, constants: Constants, profile: Profile, phase: str
) -> list[float]:
    ratios = []
    for entry in _of(
        profile, "attention", lambda entry: entry.key.phase == phase and dict(entry.key.shape)["fused"] > 0
    ):
        sizes = dict(entry.key.shape)
        window = int(sizes["window"])
        op = Attention(
            name="attention",
            phase=PHASES[phase],
            batch=int(sizes["batch"]),
            heads=sizes["heads"],
            sequence=int(sizes["sequence"]),
            qk_dim=int(sizes["qk_dim"]),
            v_dim=int(sizes["v_dim"]),
            context=int(sizes["context"]),
            window=None if window == int(sizes["sequence"]) else window,
        )
        ratios.append(attention(op, accelerator, software, constants.attention).seconds / entry.seconds)
    return ratios


def _streams(accelerator: Accelerator, constants: Constants, profile: Profile) -> list[float]:
    """Passes of eager kernels; those of routing and permutation have constants of their own."""
    ratios = []
    for entry in profile.entries:
        name = entry.key.op.removeprefix("stream/")
        if name == entry.key.op or name.startswith(("routing", "permute", "embedding")):
            continue
        moved = dict(entry.key.shape)["bytes"]
        op = Stream(name=name, phase=PHASES[entry.key.phase], bytes_moved=moved, eager=True)
        cost = stream(op, accelerator, constants.stream)
        if 1 - accelerator.gemm.launch / cost.seconds > LARGE:
            ratios.append(cost.seconds / entry.seconds)
    return ratios


def _of(profile: Profile, op: str, wanted: Callable[[Entry], bool]) -> list[Entry]:
    return [entry for entry in profile.entries if entry.key.op == op and wanted(entry)]
