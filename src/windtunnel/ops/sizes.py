"""The sizes of one unit as one rank executes it: what a block is built from and a measurement is named by."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from windtunnel.dtypes import activation
from windtunnel.job.job import Job
from windtunnel.job.model import MLA, LinearAttention
from windtunnel.job.plan import MoePlan
from windtunnel.job.vocabulary import padded_vocab
from windtunnel.ops.chunk import Unit

Kind = Literal["layer", "embedding", "head", "mtp_head"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """``local`` of ``num_experts`` experts; every token chooses ``per_token`` of them. Widths are one rank's.

    ``load``: rows this rank's experts get over the choices of its own tokens; that of the hottest rank.
    """

    num_experts: int
    local: int
    per_token: int
    width: int
    shared_width: int = 0
    load: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """One unit for one micro-batch of ``batch`` sequences of ``sequence`` tokens.

    ``tp`` ranks share heads and widths, which are given here as one rank holds them; with ``sequence_parallel`` its
    norms see ``sequence / tp`` tokens. ``vocab`` is the local part of the padded vocabulary. ``qk_norm`` says what the
    norms of queries and keys span: a ``head``, the ``full`` width, a head and ``weightless``, or nothing.
    """

    kind: Kind
    batch: int
    sequence: int
    hidden: int
    dtype: str
    tp: int = 1
    sequence_parallel: bool = False
    norm: str = "rmsnorm"
    mixer: str = "none"
    heads: int = 0
    kv_heads: int = 0
    head_dim: int = 0
    rope: bool = True
    qk_norm: str = ""
    output_gate: bool = False
    mla: MLA | None = None
    linear: LinearAttention | None = None
    feed_forward: str = "none"
    width: int = 0
    gated: bool = True
    experts: Experts | None = None
    vocab: int = 0
    mtp: bool = False

    @property
    def tokens(self) -> int:
        return self.batch * self.sequence

    @property
    def shards(self) -> int:
        """Ranks that share the tokens of a norm."""
        return self.tp if self.sequence_parallel else 1


def sizes(job: Job, unit: Unit) -> Sizes:
    """Sizes of ``unit`` of ``job`` on one rank. A context-parallel rank executes its share of the sequence."""
    model, plan, layer = job.model, job.plan, unit.layer
    parallel = plan.parallel
    compute = "bf16" if unit.high_precision else plan.precision.compute
    base = Sizes(
        kind=unit.kind,  # type: ignore[arg-type]
        batch=plan.batch.micro_batch_size,
        sequence=plan.batch.sequence_length // parallel.cp,
        hidden=model.hidden_size,
        dtype=activation(compute),
        tp=parallel.tp,
        sequence_parallel=parallel.sequence_parallel,
        norm=model.norm,
        gated=model.gated,
    )
    plain = layer is not None and layer.mixer == "attention" and model.mla is None
    if layer is None:
        return replace(base, vocab=padded_vocab(model, job.software, parallel.tp) // parallel.tp)
    return replace(
        base,
        mixer=layer.mixer,
        heads=model.num_attention_heads // parallel.tp,
        kv_heads=max(layer.num_key_value_heads // parallel.tp, 1),
        head_dim=layer.head_dim,
        rope=model.position == "rope",
        qk_norm=model.variant.qk_norm_width if model.qk_norm and plain else "",
        output_gate=model.variant.attention_gate and plain,
        mla=model.mla if layer.mixer == "attention" else None,
        linear=_local_mixer(model.linear_attention, parallel.tp) if layer.mixer == "linear_attention" else None,
        feed_forward=layer.feed_forward,
        width=layer.intermediate_size // parallel.tp,
        experts=_experts(job) if layer.feed_forward == "moe" else None,
        mtp=layer.is_mtp,
    )


def _local_mixer(mixer: LinearAttention | None, tp: int) -> LinearAttention | None:
    if mixer is None:
        return None
    return replace(mixer, num_heads=mixer.num_heads // tp, num_groups=max(1, mixer.num_groups // tp))


def _experts(job: Job) -> Experts:
    moe, parallel = job.model.moe, job.plan.parallel
    assert moe is not None
    return Experts(
        num_experts=moe.num_experts,
        local=moe.num_experts // parallel.ep,
        per_token=moe.num_experts_per_token,
        width=moe.moe_intermediate_size // parallel.etp,
        shared_width=moe.shared_expert_intermediate_size // parallel.tp,
        load=_load(job.plan.moe) * parallel.etp,
    )


def _load(moe: MoePlan) -> float:
    """A capacity fixes the rows of every expert; otherwise routing may load one rank more than the mean."""
    return moe.imbalance if moe.capacity_factor is None else moe.capacity_factor
