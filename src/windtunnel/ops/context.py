"""What decides the shapes one rank executes: batch, degrees, precision and the kernels of the software."""

from __future__ import annotations

from dataclasses import dataclass

from windtunnel.dtypes import BYTES, Compute, activation, is_quantized, saved_operand
from windtunnel.job.job import Job
from windtunnel.job.plan import ContextParallel, Dropout, Loss, MoePlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """``tokens`` = b·s/cp pass through every full-width op of a micro-batch; ``sequence_tokens`` = tokens/tp through
    the sequence-parallel ones."""

    micro_batch_size: int
    sequence_length: int
    tp: int
    cp: int
    ep: int
    etp: int
    sequence_parallel: bool
    compute: Compute
    fused_attention: bool
    fp8_attention: bool
    activation_input: float
    fused_kernels: bool
    compiled: bool
    torch_routing: bool
    kept_tensors: str
    weighs_in_experts: bool
    fused_qkv: bool
    keeps_quantized_inputs: bool
    local_spec: bool
    gather_in_fp8: bool
    moe: MoePlan
    context_parallel: ContextParallel
    dropout: Dropout
    loss: Loss
    loss_pieces: int

    @property
    def tokens(self) -> float:
        return self.micro_batch_size * self.sequence_length / self.cp

    @property
    def sp(self) -> int:
        return self.tp if self.sequence_parallel else 1

    @property
    def sequence_tokens(self) -> float:
        return self.tokens / self.sp

    @property
    def keeps_gathered(self) -> bool:
        """What a tensor-parallel region gathers in forward waits for backward, rather than to be gathered again."""
        return self.kept_tensors in ("nanotron", "torchtitan")

    @property
    def asynchronous_tp(self) -> bool:
        """The reduction of an input gradient is left running while the weight gradient is computed."""
        return self.kept_tensors != "torchtitan"

    @property
    def residual_shards(self) -> int:
        """Ranks that share the residual stream: sequence parallelism divides its length, XLA its width."""
        return self.tp if self.sequence_parallel or self.kept_tensors == "xla" else 1

    @property
    def width(self) -> float:
        """Bytes of one activation element."""
        return BYTES[activation(self.compute)]

    @property
    def saved_width(self) -> float:
        """Bytes of one element of a GEMM's input as it waits for backward."""
        if self.keeps_quantized_inputs and is_quantized(self.compute):
            return saved_operand(self.compute)
        return self.width


def context(job: Job, *, high_precision: bool = False) -> Context:
    """The context of ``job``; ``high_precision`` for the layers a recipe keeps in bf16."""
    plan, software = job.plan, job.software
    return Context(
        micro_batch_size=plan.batch.micro_batch_size,
        sequence_length=plan.batch.sequence_length,
        tp=plan.parallel.tp,
        cp=plan.parallel.cp,
        ep=plan.parallel.ep,
        etp=plan.parallel.etp,
        sequence_parallel=plan.parallel.sequence_parallel,
        compute="bf16" if high_precision else plan.precision.compute,
        fused_attention=software.attention != "unfused",
        fp8_attention=plan.precision.attention == "fp8",
        activation_input=BYTES[plan.precision.activation_input],
        fused_kernels=software.traits.fused_kernels or software.compiled,
        compiled=software.compiled,
        torch_routing=software.traits.torch_routing,
        kept_tensors=software.traits.kept_tensors,
        weighs_in_experts=software.traits.weighs_in_experts,
        fused_qkv=software.traits.fused_qkv,
        keeps_quantized_inputs=software.traits.keeps_quantized_inputs,
        local_spec=software.is_megatron and software.transformer_impl == "local",
        gather_in_fp8=software.is_megatron and is_quantized("bf16" if high_precision else plan.precision.compute),
        moe=plan.moe,
        context_parallel=plan.context_parallel,
        dropout=plan.dropout,
        loss=plan.loss,
        loss_pieces=software.traits.loss_pieces if plan.loss.kernel == "chunked" else 1,
    )
