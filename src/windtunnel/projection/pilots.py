"""Pilots of a job: two and four of its layers between embedding and head, at the shapes one rank executes."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from windtunnel.cost.profile import Key, key
from windtunnel.cost.profile_keys import unit_key
from windtunnel.dtypes import activation
from windtunnel.job.job import Job
from windtunnel.job.plan import Chunk, Offload, Overlap, Pipeline, Precision, Sharding
from windtunnel.job.software import Software
from windtunnel.ops.chunk import Unit
from windtunnel.ops.sizes import sizes

LAYERS = (2, 4)
MICROBATCHES = 2
"""Of a pilot's step: from the second on gradients are alive beside activations, as in the steps of a job."""
What = Literal["pilot", "bytes/allocated", "bytes/reserved"]
"""A pilot's step in seconds, or its peak in bytes as the allocator counts them."""


def pilots(job: Job, software: Software) -> tuple[Job, ...]:
    """The pilots of a job that has as many layers, under the ``software`` that its modules are."""
    return tuple(pilot(job, count, software) for count in LAYERS if count <= job.model.num_layers)


def pilot(job: Job, count: int, software: Software) -> Job:
    """One rank of ``job`` with ``count`` layers, alone: nothing is reduced, gathered or handed on.

    Its layers are spread over the job's, so that every kind that comes first or last is there; parameters, gradients
    and moments have the dtype the plan computes in.
    """
    model, plan = job.model, job.plan
    chosen = [round(place * (model.num_layers - 1) / (count - 1)) for place in range(count)]
    layers = tuple(model.layers[index] for index in chosen)
    dtype = activation(plan.precision.compute)
    whole = Chunk(layers=tuple(range(count)), embedding=True, head=True)
    return replace(
        job,
        model=replace(model, num_layers=count, num_mtp_layers=0, variant=replace(model.variant, layers=layers)),
        cluster=replace(job.cluster, num_accelerators=plan.parallel.tp * plan.parallel.cp),
        software=software,
        plan=replace(
            plan,
            parallel=replace(plan.parallel, pp=1, dp=1),
            pipeline=Pipeline(schedule="1f1b", virtual_stages=1, layout=(whole,), microbatch_group_size=1),
            batch=replace(plan.batch, global_batch_size=MICROBATCHES * plan.batch.micro_batch_size),
            sharding=Sharding(strategy="ddp", shard_size=1),
            precision=Precision(
                compute=dtype,  # type: ignore[arg-type]  # widths of an activation are compute dtypes
                params=dtype,
                grads=dtype,
                grad_reduce=dtype,
                master="none",
                optimizer_state=dtype,
            ),
            recompute=tuple(plan.recompute[index] for index in chosen),
            loss=replace(plan.loss, fused_cross_entropy=False, implementation="native"),
            overlap=Overlap(),
            offload=Offload(),
        ),
        origin=(),
        warnings=(),
    )


def runs_alone(job: Job) -> bool:
    """Whether a rank's layers hold no collective, so that a pilot's seconds are those of its ops."""
    parallel = job.plan.parallel
    return parallel.tp == parallel.cp == parallel.ep == parallel.etp == 1


def pilot_key(job: Job, what: What, beside: float = 0.0) -> Key:
    """The key of a pilot by all that its step consists of; the kind of its last layer stands for all of them."""
    plan, layer = job.plan, job.model.layers[-1]
    named = unit_key(sizes(job, Unit(kind="layer", layer=layer)), "step", beside)
    shape = dict(named.shape) | {"layers": job.model.num_layers, "vocab": job.model.vocab_size}
    shape |= {"count": plan.num_microbatches, "tp": plan.parallel.tp}
    again = "+".join(sorted(plan.recompute[-1])) or "none"
    return key(f"{what}/{named.op}/{again}/{plan.optimizer}", "step", named.dtype, shape)
