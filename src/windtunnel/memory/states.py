"""Static state: weights, gradients, master copy and moments of the parameters a rank holds.

Every function takes numbers or numpy arrays alike.
"""

from __future__ import annotations

from dataclasses import dataclass

from windtunnel.dtypes import BYTES
from windtunnel.job.job import Job
from windtunnel.job.plan import Precision, Sharding

MOMENTS = {"adamw": 2.0, "adam": 2.0, "adam8bit": 2.0, "muon": 1.0, "sgd": 1.0, "adafactor": 0.0}
"""Moment tensors of full size by optimizer: Muon keeps momentum alone, Adafactor keeps row and column sums."""


@dataclass(frozen=True, slots=True, kw_only=True)
class States:
    weights: float
    gradients: float
    master: float
    moments: float
    gathered: float
    """Unsharded copies that live through the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteRates:
    """Bytes per parameter of each class; whether data parallelism divides a class, and the host holds it (1 or 0)."""

    weight: float
    gradient: float
    master: float
    moments: float
    weight_sharded: float
    gradient_sharded: float
    optimizer_sharded: float
    optimizer_on_host: float
    gathered: float


def byte_rates(job: Job) -> ByteRates:
    """Bytes per local parameter as the framework, optimizer, precision and sharding keep them."""
    plan, traits = job.plan, job.software.traits
    precision, sharding = plan.precision, plan.sharding
    unsharded = traits.unsharded_under_pipeline and sharding.shards_parameters and plan.parallel.pp > 1
    return ByteRates(
        weight=_weight(precision),
        gradient=BYTES[precision.grads],
        master=BYTES[precision.master],
        moments=MOMENTS[plan.optimizer] * _moment(plan.optimizer, precision),
        weight_sharded=float(sharding.shards_parameters),
        gradient_sharded=float(sharding.shards_gradients),
        optimizer_sharded=float(sharding.shards_optimizer),
        optimizer_on_host=float(plan.offload.optimizer == "cpu"),
        # torchtitan under a pipeline: bf16 parameters and fp32 gradients stay gathered until the last micro-batch.
        gathered=2.0 + BYTES["fp32"] if unsharded else 0.0,
    )


def _weight(precision: Precision) -> float:
    """Native fp8 weights are held twice: as they are and transposed for the input gradient."""
    return 2 * BYTES["fp8"] if precision.params == "fp8" else BYTES[precision.params]


def _moment(optimizer: str, precision: Precision) -> float:
    return BYTES["int8"] if optimizer == "adam8bit" else BYTES[precision.optimizer_state]


def states(dense: float, expert: float, dense_shard: float, expert_shard: float, rates: ByteRates) -> States:
    """Bytes of ``dense`` and ``expert`` local parameters whose shards are 1/``dense_shard`` and 1/``expert_shard``."""
    local = dense + expert
    saved = local - dense / dense_shard - expert / expert_shard
    optimizer = (local - rates.optimizer_sharded * saved) * (1 - rates.optimizer_on_host)
    return States(
        weights=rates.weight * (local - rates.weight_sharded * saved),
        gradients=rates.gradient * (local - rates.gradient_sharded * saved),
        master=rates.master * optimizer,
        moments=rates.moments * optimizer,
        gathered=rates.gathered * local,
    )


def shard_sizes(job: Job) -> tuple[int, int]:
    """Ranks that share dense state, and ranks that share expert state: the same fraction of the replicas of each."""
    parallel, sharding = job.plan.parallel, job.plan.sharding
    return shards(parallel.dp * parallel.cp, max(1, parallel.expert_dp), sharding)


def shards(replicas: int, expert_replicas: int, sharding: Sharding) -> tuple[int, int]:
    if not sharding.shards_optimizer:
        return 1, 1
    return sharding.shard_size, max(1, expert_replicas * sharding.shard_size // replicas)
