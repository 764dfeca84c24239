"""What a training framework of a given date does: kernels, kept tensors, overlap ability, host cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Framework = Literal[
    "megatron-core", "megatron-bridge", "nemo", "torchtitan", "pytorch-fsdp", "llm-foundry", "deepspeed", "nanotron",
    "maxtext", "primus", "automodel",
]  # fmt: skip
AttentionBackend = Literal["flash2", "flash3", "te-fused", "sdpa", "aiter", "splash", "unfused"]
CudaGraphs = Literal["none", "partial", "full_iteration"]
GraphScope = Literal["attn", "mlp", "moe", "moe_router", "moe_preprocess", "mamba"]

MEGATRON_FAMILY = frozenset({"megatron-core", "megatron-bridge", "nemo", "primus"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """Behaviour of a framework generation that no job key names; each value is in ``data/software`` with a source."""

    kept_tensors: Literal["megatron", "torchtitan", "nanotron", "xla"] = "megatron"
    """Which family of kept-for-backward tensors its layers follow (`facts` of the memory model)."""
    etp_follows_tp: bool = False
    """An unset expert tensor parallel degree equals tp (Megatron-core)."""
    vocab_multiple: int = 1
    """Padding multiple of the vocabulary."""
    vocab_multiple_times_tp: bool = False
    fused_kernels: bool = True
    """Norm, activation, bias-dropout-add and RoPE are single kernels."""
    attention_factor: float = 1.0
    """Attention throughput relative to the accelerator's fused kernels of that generation."""
    torch_routing: bool = False
    """Tokens reach their experts and come back by indexing kernels of torch, not by fused permutations."""
    host_era: Literal["modern", "eager", "rocm", "xla"] = "modern"
    """Which host drives the launches: one of 2024 on, one before fused operators, ROCm's, or XLA's single program."""
    weight_gradient_placeholders: bool = False
    """Transformer Engine's cached dummy gradients, one per distinct weight shape."""
    loss_kept_bytes: float = 4.0
    loss_peak_bytes: float = 6.0
    """Bytes per local logit that stay until backward, and at the loss's peak moment."""
    fused_loss_kept_bytes: float = 2.0
    fused_loss_peak_bytes: float = 10.0
    loss_cached_bytes: float = 0.0
    """Bytes per local logit that are free while the loss peaks but in blocks too small for what it asks for: reserved,
    not allocated."""
    weighs_in_experts: bool = False
    """Experts weigh their rows by the router's probabilities, so that no un-permutation keeps rows to weigh them."""
    fused_qkv: bool = False
    """Query, key and value are one product: a policy that saves every second matmul saves all three of them."""
    gradient_bucket: float = 160e6
    """Bytes of one gradient bucket."""
    unsharded_under_pipeline: bool = False
    """FSDP keeps parameters and gradients gathered between micro-batches when pp > 1 (torchtitan's default)."""
    keeps_quantized_inputs: bool = False
    """A quantized GEMM keeps its narrow input for the weight gradient, not the tensor it was cast from."""
    quantized_weights: Literal["untouched", "copied", "stored"] = "untouched"
    """Under a quantized recipe weights stay as they are and are cast at each use, have quantized copies cached beside
    them, or are stored quantized alone."""
    one_gradient_buffer: bool = False
    """Gradients accumulate in the buffer that is reduced, so both have one dtype (Megatron-core)."""
    all_forward_at_m_equals_p: bool = True
    """Interleaved 1F1B runs every forward first when there are as many micro-batches as stages."""
    foreach_optimizer: bool = False
    """The optimizer step holds one more copy of the local parameters."""
    hands_masters_in: tuple[str, ...] = ()
    """Compute precisions in which an optimizer with 16-bit moments is handed the fp32 master, of which it stores the
    low halves that bf16 weights lack, and gradients as they are."""
    widens_gradients: bool = False
    """The optimizer step holds an fp32 copy of narrower gradients, unless the optimizer takes them as they are."""
    widens_moments: bool = False
    """The optimizer step widens 16-bit moments to fp32, all of a parameter group at once."""
    expert_states_by_tensor: bool = False
    """Master and moments of an expert are two tensors each, in blocks of their own: its two matrices."""
    product_groups: bool = False
    """All ranks, a model replica and data with context parallelism have communicators beside those of each degree."""
    loss_pieces: int = 8
    """Pieces a chunked loss cuts its tokens into."""
    whole_tensor_shards: bool = False
    """Muon's state is dealt to replicas tensor by tensor, never cut."""
    reserved_ratio: float = 1.04
    """Allocator reserved over allocated, median."""
    dense_residual_low: float = 0.95
    dense_residual_high: float = 1.05
    moe_residual_low: float = 0.95
    moe_residual_high: float = 1.05
    """Measured over projected peak memory: 10th and 90th percentile over published runs."""
    scatters_transfers: bool = False
    """Where tensor-parallel ranks hold equal hidden states, each hands on a share and the receivers gather the rest."""
    packs_by_rank: bool = False
    """A sharded optimizer packs and unpacks its traffic with one copy for every tensor of every rank."""
    receives_ahead: bool = False
    """A pipeline stage allocates the buffers of every micro-batch it will receive, before the first."""
    layer_balance: Literal["even", "cost"] = "even"
    """How layers are spread over stages when the plan is silent."""
    schedules: tuple[str, ...] = ("1f1b", "interleaved_1f1b")
    """Pipeline schedules the framework has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """Framework, date and kernel choices in force; ``date`` is the container's year-month, e.g. ``"2025-02"``."""

    framework: Framework
    date: str
    version: str | None = None
    attention: AttentionBackend = "te-fused"
    compiled: bool = False
    cuda_graphs: CudaGraphs = "none"
    cuda_graph_scope: frozenset[str] | None = None
    transformer_impl: Literal["te", "local"] = "te"
    allocator: Literal["default", "expandable_segments"] = "default"
    traits: Traits = Traits()

    @property
    def is_megatron(self) -> bool:
        return self.framework in MEGATRON_FAMILY


@dataclass(frozen=True, slots=True)
class SoftwareDefault:
    """One default a framework sets: a job path, its value, and where the framework says so."""

    path: str
    value: object
    source: str


@dataclass(frozen=True, slots=True)
class SoftwareProfile:
    """A framework at a date, as data: its traits and the job defaults it sets, newest entries already applied."""

    framework: Framework
    date: str
    traits: Traits
    defaults: tuple[SoftwareDefault, ...]
