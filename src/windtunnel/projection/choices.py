"""What plans of one grid point may differ in: variants change what a chunk costs and keeps, choices how its state is
sharded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from windtunnel.job.job import Job
from windtunnel.job.plan import Chunk, Dispatcher, RecomputePolicy, Strategy
from windtunnel.job.recompute import recomputed

Changes = dict[str, Any]

RECOMPUTE = "plan.recompute"
DISPATCHER = "plan.moe.dispatcher"
TP_COMM = "plan.overlap.tp_comm"
CP_COMM = "plan.overlap.cp_comm"
EP_COMM = "plan.overlap.ep_comm"
P2P = "plan.overlap.p2p"
ACTIVATION_OFFLOAD = "plan.offload.activations"
SHARDING = "plan.sharding.strategy"
SHARD_SIZE = "plan.sharding.shard_size"
GRAD_REDUCE = "plan.overlap.grad_reduce"
PARAM_GATHER = "plan.overlap.param_gather"
OPTIMIZER_OFFLOAD = "plan.offload.optimizer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recompute:
    """One spelling of a recompute policy, as the job format has it."""

    policy: RecomputePolicy = "none"
    num_layers: int | None = None
    layers: tuple[int, ...] | None = None
    modules: tuple[str, ...] | None = None

    @property
    def value(self) -> Changes:
        """The ``plan.recompute`` section."""
        named = {"num_layers": self.num_layers, "layers": self.layers, "modules": self.modules}
        given = {key: list(v) if isinstance(v, tuple) else v for key, v in named.items() if v is not None}
        return {"policy": self.policy, **given}

    def of(self, job: Job) -> tuple[frozenset[str], ...]:
        """What each layer of the job's layout re-executes."""
        return self.over(job.plan.pipeline.layout, job.model.num_mtp_layers)

    def over(self, layout: tuple[Chunk, ...], num_mtp_layers: int) -> tuple[frozenset[str], ...]:
        """What each layer of a layout re-executes."""
        return recomputed(
            self.policy,
            num_layers=self.num_layers,
            layers=self.layers,
            modules=self.modules,
            layout=layout,
            num_mtp_layers=num_mtp_layers,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """What decides the seconds and kept bytes of a unit beside its recompute."""

    dispatcher: Dispatcher
    tp_comm: bool
    cp_comm: bool
    ep_comm: bool
    p2p: bool
    offload: float

    @property
    def changes(self) -> Changes:
        return {
            DISPATCHER: self.dispatcher,
            TP_COMM: self.tp_comm,
            CP_COMM: self.cp_comm,
            EP_COMM: self.ep_comm,
            P2P: self.p2p,
            ACTIVATION_OFFLOAD: self.offload,
        }

    @property
    def kept(self) -> tuple[Dispatcher, float]:
        """What of them changes the bytes a unit keeps."""
        return self.dispatcher, self.offload

    @property
    def priced(self) -> tuple[Dispatcher, bool, bool, bool, float]:
        """What of them changes the seconds of a unit."""
        return self.dispatcher, self.tp_comm, self.cp_comm, self.ep_comm, self.offload

    def apply(self, job: Job) -> Job:
        plan = job.plan
        overlap = replace(plan.overlap, tp_comm=self.tp_comm, cp_comm=self.cp_comm, ep_comm=self.ep_comm, p2p=self.p2p)
        offload = replace(plan.offload, activations=self.offload)
        moe = replace(plan.moe, dispatcher=self.dispatcher)
        return replace(job, plan=replace(plan, overlap=overlap, offload=offload, moe=moe))


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to execute the chunks of a grid point; without a recompute, the job's own."""

    recompute: Recompute | None
    kernels: Kernels

    @property
    def changes(self) -> Changes:
        own = {} if self.recompute is None else {RECOMPUTE: self.recompute.value}
        return {**own, **self.kernels.changes}

    def apply(self, job: Job) -> Job:
        varied = self.kernels.apply(job)
        recompute = job.plan.recompute if self.recompute is None else self.recompute.of(job)
        return replace(varied, plan=replace(varied.plan, recompute=recompute))


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to shard, overlap and place the training state of a grid point."""

    strategy: Strategy
    shard_size: int
    grad_reduce: bool
    param_gather: bool
    optimizer_offload: Literal["none", "cpu"]

    @property
    def changes(self) -> Changes:
        return {
            SHARDING: self.strategy,
            SHARD_SIZE: self.shard_size,
            GRAD_REDUCE: self.grad_reduce,
            PARAM_GATHER: self.param_gather,
            OPTIMIZER_OFFLOAD: self.optimizer_offload,
        }

    @property
    def state(self) -> tuple[Strategy, int, Literal["none", "cpu"]]:
        """What of it decides the bytes a rank holds."""
        return self.strategy, self.shard_size, self.optimizer_offload

    def apply(self, job: Job) -> Job:
        """``job`` with these values, everything else untouched."""
        plan = job.plan
        return replace(
            job,
            plan=replace(
                plan,
                sharding=replace(plan.sharding, strategy=self.strategy, shard_size=self.shard_size),
                overlap=replace(plan.overlap, grad_reduce=self.grad_reduce, param_gather=self.param_gather),
                offload=replace(plan.offload, optimizer=self.optimizer_offload),
            ),
        )
