"""Operations one rank executes for one micro-batch: shapes, FLOPs, bytes moved and bytes kept for backward.

Every op belongs to a phase: F forward, B backward for inputs, W backward for weights. An op never knows seconds; a cost
source does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from windtunnel.dtypes import BYTES, Compute, operand

Phase = Literal["F", "B", "W"]
Group = Literal["tp", "cp", "ep", "etp", "dp", "edp", "pp"]
CollectiveKind = Literal["all_gather", "reduce_scatter", "all_reduce", "all_to_all", "send_recv"]


@dataclass(frozen=True, slots=True)
class Kept:
    """A tensor saved for backward.

    ``dropped_by`` names the recompute modules that make it unnecessary; "full" drops all but the layer's input.
    ``only_under`` names a policy that saves it although plain backward would not. ``of`` is the class it is reported
    under.
    """

    name: str
    bytes: float
    dropped_by: frozenset[str] = frozenset()
    layer_input: bool = False
    of: Literal["activations", "dispatcher"] = "activations"
    only_under: str | None = None

    def survives(self, recompute: frozenset[str]) -> bool:
        if "full" in recompute:
            return self.layer_input
        if self.only_under is not None and self.only_under not in recompute:
            return False
        return not (self.dropped_by & recompute)


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """Base of all ops. ``modules`` are the recompute modules this op belongs to."""

    name: str
    phase: Phase
    modules: frozenset[str] = frozenset()
    keeps: tuple[Kept, ...] = ()

    @property
    def flops(self) -> float:
        return 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemm(Op):
    """y[m, n] = x[m, k] · w[k, n], executed ``count`` times."""

    m: float
    n: float
    k: float
    compute: Compute
    accumulates_fp32: bool = False
    count: int = 1

    @property
    def flops(self) -> float:
        return 2 * self.m * self.n * self.k * self.count

    @property
    def bytes_moved(self) -> float:
        """Operands once, the result once; an fp32 accumulator is read and written."""
        width = BYTES[operand(self.compute)]
        result = 8.0 if self.accumulates_fp32 else 2.0
        return (width * (self.m * self.k + self.k * self.n) + result * self.m * self.n) * self.count


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedGemm(Op):
    """``groups`` independent GEMMs of ``m`` rows each, one launch (``grouped``) or one a group."""

    groups: int
    m: float
    n: float
    k: float
    compute: Compute
    accumulates_fp32: bool = False
    padded: bool = True
    grouped: bool = True

    @property
    def flops(self) -> float:
        return 2 * self.groups * self.m * self.n * self.k


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention(Op):
    """softmax(q · kᵀ) · v of ``batch`` sequences of ``sequence`` tokens, causal, on ``heads`` local heads.

    ``context`` ranks share a sequence; ``balanced`` ranks have equal work, otherwise this is the rank with the last
    tokens, which see all others. ``window`` tokens are visible when given.
    """

    batch: int
    heads: float
    sequence: int
    qk_dim: int
    v_dim: int
    context: int = 1
    balanced: bool = True
    window: int | None = None
    fused: bool = True
    sinks: bool = False
    fp8: bool = False

    @property
    def pairs(self) -> float:
        """Query-key pairs that count: half the square, or the window's band."""
        s = self.sequence
        visible = s / 2 if self.window is None or self.window >= s else self.window * (1 - self.window / (2 * s))
        return self.batch * self.heads * s * visible / self.context * self.hottest

    @property
    def hottest(self) -> float:
        """Work of this rank over the mean: contiguous shares of a causal square end with 2 − 1/context of it."""
        causal = self.window is None or self.window >= self.sequence
        return 1.0 if self.balanced or not causal else 2 - 1 / self.context

    @property
    def flops(self) -> float:
        """Causal FLOPs; the backward of a fused kernel re-forms the scores: 2.5 × forward (5 GEMMs against 2)."""
        forward = 2 * self.pairs * (self.qk_dim + self.v_dim)
        return forward if self.phase == "F" else 2.5 * forward


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream(Op):
    """A memory-bound pass: ``bytes_moved`` through HBM in ``kernels`` launches."""

    bytes_moved: float
    kernels: int = 1
    eager: bool = False
    kind: Literal["pass", "embedding", "cast", "permute", "router"] = "pass"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan(Op):
    """The chunked recurrence of a linear-attention layer."""

    scan_flops: float
    bytes_moved: float

    @property
    def flops(self) -> float:
        return self.scan_flops


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective(Op):
    """``size`` bytes (the full, gathered size) over the ranks of ``group``.

    ``beside``: a GEMM it can run beside. With ``pieces`` of 1 one that does not wait for it; with more the GEMM that
    reads or writes what it moves, cut into as many along the tokens where the software overlaps them.
    """

    collective: CollectiveKind
    group: Group
    size: float
    beside: Gemm | None = None
    pieces: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RingExchange(Op):
    """Key and value blocks of ``size`` bytes that travel ``hops`` times round a ring of ranks beside attention."""

    size: float
    hops: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertExchange(Op):
    """Tokens to their experts or back: ``tokens`` rows of ``row_bytes``, each for ``experts_per_token`` experts."""

    dispatcher: Literal["alltoall", "allgather", "deepep", "hybridep"]
    tokens: float
    row_bytes: float
    experts_per_token: int
    groups_per_token: int | None = None
