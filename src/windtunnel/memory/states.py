"""Static state: weights, gradients, master copy and moments of the parameters a rank holds.

Every function takes numbers or numpy arrays alike.
"""

from __future__ import annotations

from dataclasses import dataclass

from windtunnel.dtypes import BYTES
from windtunnel.elementwise import maximum
from windtunnel.job.job import Job
from windtunnel.job.plan import Plan, Precision, Sharding
from windtunnel.job.software import Traits
from windtunnel.memory.blocks import rest
from windtunnel.memory.weights import weight_bytes

MOMENTS = {"adamw": 2.0, "adam": 2.0, "adam8bit": 2.0, "muon": 1.0, "sgd": 1.0, "adafactor": 0.0}
"""Moment tensors of full size by optimizer: Muon keeps momentum alone, Adafactor keeps row and column sums."""
BLOCK = 256
"""Values that share one fp32 scale in block-wise 8-bit optimizers (bitsandbytes, torchao)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class States:
    weights: float
    gradients: float
    master: float
    moments: float
    gathered: float
    """Unsharded copies that live through the step."""
    stepping: float
    """What the optimizer step holds besides, while nothing is in flight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteRates:
    """Bytes per parameter of each class; whether data parallelism divides a class, and the host holds it (1 or 0).

    ``stepping_weight`` is a share of the weights, ``stepping_gradient`` bytes per optimizer parameter,
    ``stepping_moments`` bytes per optimizer parameter of the larger of the dense and the expert group.
    ``whole_tensors``: 1 where a shard holds whole tensors, hence at least the largest. ``*_rest``: bytes per parameter
    of an expert that is not divided over replicas, beyond those of its tensors: the rests of their blocks.
    """

    weight: float
    gradient: float
    master: float
    moments: float
    weight_sharded: float
    gradient_sharded: float
    optimizer_sharded: float
    optimizer_on_host: float
    gathered: float
    stepping_weight: float
    stepping_gradient: float
    stepping_moments: float
    whole_tensors: float
    master_rest: float
    moments_rest: float
    stepping_rest: float


def byte_rates(job: Job) -> ByteRates:
    """Bytes per local parameter as the framework, optimizer, precision and sharding keep them."""
    plan, traits = job.plan, job.software.traits
    precision, sharding = plan.precision, plan.sharding
    unsharded = traits.unsharded_under_pipeline and sharding.shards_parameters and plan.parallel.pp > 1
    master, moments, moment = _master(precision, traits), MOMENTS[plan.optimizer], _moment(plan.optimizer, precision)
    gradient = _widened_gradient(plan, traits)
    return ByteRates(
        weight=weight_bytes(job),
        gradient=BYTES[precision.grads],
        master=master,
        moments=moments * moment,
        weight_sharded=float(sharding.shards_parameters),
        gradient_sharded=float(sharding.shards_gradients),
        optimizer_sharded=float(sharding.shards_optimizer),
        optimizer_on_host=float(plan.offload.optimizer == "cpu"),
        # torchtitan under a pipeline: bf16 parameters and fp32 gradients stay gathered until the last micro-batch.
        gathered=2.0 + BYTES["fp32"] if unsharded else 0.0,
        stepping_weight=float(traits.foreach_optimizer and plan.optimizer in FOREACH),
        stepping_gradient=gradient,
        stepping_moments=moments * BYTES["fp32"] if traits.widens_moments and _narrow(plan) else 0.0,
        whole_tensors=float(traits.whole_tensor_shards and plan.optimizer == "muon" and sharding.shards_optimizer),
        master_rest=_expert_rest(job, master),
        moments_rest=moments * _expert_rest(job, moment),
        stepping_rest=_expert_rest(job, gradient),
    )


def _expert_rest(job: Job, width: float) -> float:
    """Bytes per parameter that the blocks of an expert's two state tensors hold beyond ``width`` each."""
    moe, accelerator = job.model.moe, job.cluster.accelerator
    own = job.software.traits.expert_states_by_tensor and job.software.allocator == "default" and not accelerator.is_tpu
    if moe is None or not own:
        return 0.0
    narrow = job.model.hidden_size * moe.moe_intermediate_size / job.plan.parallel.etp
    tensors = (narrow * (2 if job.model.gated else 1), narrow)
    return sum(rest(width * size) for size in tensors) / sum(tensors)


FOREACH = frozenset({"adamw", "adam"})
"""Optimizers of torch.optim that run foreach: with temporaries of the size of the parameters."""


def _narrow(plan: Plan) -> bool:
    """Whether moments are stored in fewer bits than they are updated in, by the framework's own optimizer."""
    return plan.precision.optimizer_state != "fp32" and plan.optimizer in FOREACH and plan.offload.optimizer == "none"


def _master(precision: Precision, traits: Traits) -> float:
    """Beside bf16 weights the low halves of an fp32 master are enough: an optimizer that is handed it stores them."""
    if _handed(precision, traits) and (precision.params, precision.master) == ("bf16", "fp32"):
        return BYTES["fp32"] - BYTES["bf16"]
    return BYTES[precision.master]


def _handed(precision: Precision, traits: Traits) -> bool:
    """Whether master and 2-byte gradients are left to a precision-aware optimizer, which 16-bit moments need.

    Megatron-core otherwise keeps a whole master itself (optimizer_config.py:
    use_precision_aware_optimizer_no_fp8_or_ds_fp8).
    """
    return precision.compute in traits.hands_masters_in and precision.optimizer_state != "fp32"


def _widened_gradient(plan: Plan, traits: Traits) -> float:
    """The fp32 copy of narrow gradients that the master is stepped with, from the step to the next one's start.

    Sharded parameters are stepped in small groups (DeepSpeed stage3.py: ``sub_group_size``), which are not counted.
    """
    precision = plan.precision
    narrow = BYTES[precision.grads] < BYTES["fp32"] and BYTES[precision.master] >= BYTES["fp32"]
    whole = traits.widens_gradients and not plan.sharding.shards_parameters
    copied = whole and narrow and not _handed(precision, traits)
    return BYTES["fp32"] if copied else 0.0


def _moment(optimizer: str, precision: Precision) -> float:
    if optimizer == "adam8bit":
        return BYTES["int8"] + BYTES["fp32"] / BLOCK
    return BYTES[precision.optimizer_state]


def states(
    dense: float, expert: float, dense_shard: float, expert_shard: float, rates: ByteRates, largest: float = 0.0
) -> States:
    """Bytes of ``dense`` and ``expert`` local parameters whose shards are 1/``dense_shard`` and 1/``expert_shard``.

    ``largest`` parameters of one tensor are the least a shard of whole tensors holds.
    """
    local = dense + expert
    saved = local - dense / dense_shard - expert / expert_shard
    dense_part = dense - rates.optimizer_sharded * (dense - dense / dense_shard)
    expert_part = expert - rates.optimizer_sharded * (expert - expert / expert_shard)
    dense_part = maximum(dense_part, rates.whole_tensors * largest)
    kept_here = 1 - rates.optimizer_on_host
    optimizer = (dense_part + expert_part) * kept_here
    weights = rates.weight * (local - rates.weight_sharded * saved)
    undivided = expert * ((expert_part >= expert) * kept_here)
    return States(
        weights=weights,
        gradients=rates.gradient * (local - rates.gradient_sharded * saved),
        master=rates.master * optimizer + rates.master_rest * undivided,
        moments=rates.moments * optimizer + rates.moments_rest * undivided,
        gathered=rates.gathered * local,
        stepping=rates.stepping_weight * weights
        + rates.stepping_gradient * optimizer
        + rates.stepping_rest * undivided
        + rates.stepping_moments * maximum(dense_part, expert_part),
    )


def shard_sizes(job: Job) -> tuple[int, int]:
    """Ranks that share dense state, and ranks that share expert state: the same fraction of the replicas of each."""
    parallel, sharding = job.plan.parallel, job.plan.sharding
    return shards(parallel.dp * parallel.cp, max(1, parallel.expert_dp), sharding)


def shards(replicas: int, expert_replicas: int, sharding: Sharding) -> tuple[int, int]:
    if not sharding.shards_optimizer:
        return 1, 1
    return sharding.shard_size, max(1, expert_replicas * sharding.shard_size // replicas)
