"""The plan: every choice that a team can change between two runs of one model on one cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from windtunnel.dtypes import Compute, Storage

Schedule = Literal[
    "gpipe", "1f1b", "interleaved_1f1b", "looped_bfs", "1f1b_ep_overlap", "zb_h1", "zb_heuristic", "interleaved_zb",
    "zbv", "v_half", "v_min", "dualpipe", "dualpipe_v", "custom",
]  # fmt: skip
OVERLAPPING_SCHEDULES = frozenset({"1f1b_ep_overlap", "dualpipe", "dualpipe_v"})
"""Schedules that pair the forward of one micro-batch with the backward of another to hide expert traffic."""
V_SCHEDULES = frozenset({"zbv", "v_half", "v_min", "dualpipe_v"})
"""Two chunks a stage, folded into a V."""
LOOPED_SCHEDULES = frozenset({"interleaved_1f1b", "looped_bfs", "interleaved_zb"})
"""Two chunks a stage or more, chunk i on stage i mod pp."""
Strategy = Literal["ddp", "zero1", "zero2", "zero3", "fsdp", "hsdp"]
RecomputePolicy = Literal["none", "full", "block", "uniform", "selective", "modules", "per_op"]
RecomputeModule = Literal["core_attn", "mlp", "moe", "moe_act", "layernorm", "mla_up_proj", "shared_experts"]
OffloadModule = Literal[
    "attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm", "expert_fc1", "moe_act",
]  # fmt: skip
"""Modules whose input Megatron-core can keep in host memory."""
Dispatcher = Literal["alltoall", "allgather", "deepep", "hybridep"]
ContextParallelKind = Literal["ring", "all_gather", "ulysses", "ring_ulysses"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """Degrees of the dense grid (tp × cp × pp × dp) and of the expert grid inside tp × cp × dp."""

    tp: int = 1
    cp: int = 1
    pp: int = 1
    ep: int = 1
    etp: int = 1
    dp: int = 1
    sequence_parallel: bool = False
    order: tuple[str, ...] = ("tp", "cp", "ep", "dp", "pp")

    @property
    def world(self) -> int:
        return self.tp * self.cp * self.pp * self.dp

    @property
    def expert_dp(self) -> int:
        """Replicas of one expert shard."""
        return self.tp * self.cp * self.dp // (self.ep * self.etp)


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one virtual stage holds: transformer layers by id, embedding, MTP depths, head and loss."""

    layers: tuple[int, ...]
    embedding: bool = False
    head: bool = False
    num_mtp_layers: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """``layout[c]`` is the c-th chunk along the model; ``stage_of(c)`` says which stage holds it."""

    schedule: Schedule
    virtual_stages: int
    layout: tuple[Chunk, ...]
    microbatch_group_size: int
    orders: tuple[tuple[str, ...], ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    micro_batch_size: int
    global_batch_size: int
    sequence_length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharding:
    """``shard_size`` ranks share what the strategy shards; the rest of dp × cp replicates it."""

    strategy: Strategy
    shard_size: int
    implementation: str | None = None

    @property
    def shards_parameters(self) -> bool:
        return self.strategy in ("zero3", "fsdp", "hsdp")

    @property
    def shards_gradients(self) -> bool:
        return self.strategy in ("zero2", "zero3", "fsdp", "hsdp")

    @property
    def shards_optimizer(self) -> bool:
        return self.strategy != "ddp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    compute: Compute
    params: Storage
    grads: Storage
    grad_reduce: Storage
    master: Storage
    optimizer_state: Storage
    first_last_layers_bf16: int = 0
    attention: str = "bf16"
    activation_input: str = "bf16"
    """What the input of a gated or plain activation function waits for backward in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoePlan:
    dispatcher: Dispatcher = "alltoall"
    routing: Literal["balanced", "skewed"] = "balanced"
    imbalance: float = 1.0
    capacity_factor: float | None = None
    grouped_gemm: bool = True
    permute_fusion: bool = False
    sync_free: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    grad_reduce: bool = False
    param_gather: bool = False
    tp_comm: bool = False
    cp_comm: bool = True
    ep_comm: bool = False
    p2p: bool = False
    delay_wgrad: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextParallel:
    kind: ContextParallelKind = "ring"
    ulysses_size: int = 1
    load_balanced: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Offload:
    activations: float = 0.0
    """Share of a rank's layers whose kept activations go to host memory; with ``modules`` their inputs alone."""
    modules: frozenset[str] = frozenset()
    optimizer: Literal["none", "cpu"] = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    fused_cross_entropy: bool = False
    implementation: Literal["native", "te", "liger", "chunked"] = "native"
    vocab_parallel: bool = True
    logits_dtype: Storage = "bf16"

    @property
    def kernel(self) -> Literal["eager", "fused", "te", "liger", "chunked"]:
        """What runs: native and te name the kernel of a *fused* cross-entropy and are plain torch without fusion."""
        if self.implementation in ("liger", "chunked"):
            return self.implementation
        if not self.fused_cross_entropy:
            return "eager"
        return "te" if self.implementation == "te" else "fused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropout:
    hidden: float = 0.0
    attention: float = 0.0


FULL = "full"
PER_OP = "per_op"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """``recompute[i]`` names what layer i re-executes in backward: module names, or "full", or "per_op".

    MTP layers follow the transformer layers.
    """

    parallel: Parallel
    pipeline: Pipeline
    batch: Batch
    sharding: Sharding
    precision: Precision
    recompute: tuple[frozenset[str], ...]
    optimizer: str = "adamw"
    moe: MoePlan = MoePlan()
    overlap: Overlap = Overlap()
    context_parallel: ContextParallel = ContextParallel()
    offload: Offload = Offload()
    loss: Loss = Loss()
    dropout: Dropout = Dropout()

    @property
    def num_microbatches(self) -> int:
        return self.batch.global_batch_size // (self.batch.micro_batch_size * self.parallel.dp)
