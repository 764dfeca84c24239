"""Gradient reduction, parameter gathering and the optimizer: what a step adds to its pipeline."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from windtunnel.cost.collectives.placement import Placement, expert_strides, place, strides
from windtunnel.cost.source import CostSource
from windtunnel.dtypes import BYTES, is_quantized
from windtunnel.job.job import Job
from windtunnel.ops.chunk import LocalParameters
from windtunnel.step.chunk import ChunkCost, UnitCost


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAddition:
    """Seconds a stage adds after its part of the pipeline."""

    exposed: float
    hidden: float
    contention: float
    optimizer: float
    offload: float

    @property
    def total(self) -> float:
        return self.exposed + self.contention + self.optimizer + self.offload


@dataclass(frozen=True, slots=True)
class _Traffic:
    """Seconds, and bytes this rank sends, of one collective."""

    seconds: float
    bytes: float


class DataParallel:
    """Prices the data-parallel traffic and the optimizer of one job, stage by stage."""

    def __init__(self, job: Job, source: CostSource) -> None:
        self._job = job
        self._source = source
        plan = job.plan
        self._dense, self._dense_replicas = _groups(job, expert=False)
        self._expert, self._expert_replicas = _groups(job, expert=True)
        self._constants = job.constants.data_parallel
        self._m = plan.num_microbatches
        self._reduce_bytes = BYTES[plan.precision.grad_reduce]
        self._gather_bytes = 1.0 if plan.precision.params == "fp8" else 2.0

    def addition(self, stage: tuple[ChunkCost, ...]) -> StepAddition:
        """What the stage made of these chunks adds to the step."""
        if self._job.plan.sharding.shards_parameters and self._job.plan.parallel.pp == 1:
            exposed, hidden, contention = self._by_layer(stage)
        else:
            exposed, hidden, contention = self._by_step(stage)
        parameters = _sum(chunk.parameters for chunk in stage)
        return StepAddition(
            exposed=exposed,
            hidden=hidden,
            contention=contention,
            optimizer=self._optimizer(parameters),
            offload=self._optimizer_offload(parameters),
        )

    def _by_step(self, stage: tuple[ChunkCost, ...]) -> tuple[float, float, float]:
        """Reduction behind the last backward and gathering behind the first forward, in buckets."""
        plan, overlap = self._job.plan, self._job.plan.overlap
        parameters = _sum(chunk.parameters for chunk in stage)
        forward = sum(chunk.forward.total for chunk in stage)
        backward = sum(chunk.backward for chunk in stage)
        growth = 1.0
        if plan.parallel.pp > 1:
            growth += self._constants.window_growth * (plan.parallel.pp - 1) / plan.pipeline.virtual_stages
        reduce = self._reduce(parameters)
        gather = self._gather(parameters) if plan.sharding.shards_optimizer else _Traffic(0.0, 0.0)
        buckets = max(1.0, parameters.total * self._reduce_bytes / self._job.software.traits.gradient_bucket)
        exposed_reduce = self._exposed(reduce.seconds, backward * growth, buckets, overlap.grad_reduce)
        exposed_gather = self._exposed(gather.seconds, forward * growth, buckets, overlap.param_gather)
        if plan.sharding.strategy == "zero2" and plan.parallel.pp == 1:
            # Sharded gradients are reduced after every micro-batch, not once a step.
            exposed_reduce *= self._m
        window = (backward if overlap.grad_reduce else 0.0, forward if overlap.param_gather else 0.0)
        contention = self._contention(reduce, window[0] * growth) + self._contention(gather, window[1] * growth)
        total = reduce.seconds + gather.seconds
        exposed = exposed_reduce + exposed_gather
        return exposed, max(0.0, total - exposed), contention

    def _exposed(self, seconds: float, window: float, buckets: float, overlapped: bool) -> float:
        if not overlapped:
            return seconds
        return max(seconds - self._constants.reduce_hidden * window, seconds / buckets, 0.0)

    def _by_layer(self, stage: tuple[ChunkCost, ...]) -> tuple[float, float, float]:
        """FSDP: each unit's gather runs beside the unit before it, its gradient reduction beside the one after."""
        exposed = total = contention = 0.0
        hide = self._constants.fsdp_hidden
        counted = [unit for chunk in stage for unit in chunk.units]
        for unit in counted:
            gather, reduce = self._gather(unit.parameters), self._reduce_scatter(unit.parameters)
            forward, backward = unit.cost.forward.total, unit.cost.backward
            late = max(0.0, gather.seconds - hide * forward)
            late += max(0.0, gather.seconds + reduce.seconds - hide * backward)
            busy = self._contention(gather, forward) + self._contention(
                _Traffic(gather.seconds + reduce.seconds, gather.bytes + reduce.bytes), backward
            )
            n = unit.occurrences
            exposed, contention = exposed + n * late, contention + n * busy
            total += n * (2 * gather.seconds + reduce.seconds)
        ends = self._ends(counted)
        replicas = self._replica_reduce(_sum(chunk.parameters for chunk in stage))
        backward = sum(chunk.backward for chunk in stage)
        late_replicas = self._exposed(replicas, backward, float(max(1, len(counted))), True)
        exposed_step = self._m * (exposed + ends) + late_replicas
        total_step = self._m * total + replicas
        return exposed_step, max(0.0, total_step - exposed_step), self._m * contention

    def _ends(self, counted: list[UnitCost]) -> float:
        """The first gather of a micro-batch and its last reduction have nothing to hide behind."""
        if not counted:
            return 0.0
        first = counted[0].parameters
        return self._gather(first).seconds + self._reduce_scatter(first).seconds

    def _reduce(self, parameters: LocalParameters) -> _Traffic:
        if self._job.plan.sharding.strategy == "ddp":
            return self._over(parameters, "all_reduce", self._reduce_bytes)
        scattered = self._reduce_scatter(parameters)
        return _Traffic(scattered.seconds + self._replica_reduce(parameters), scattered.bytes)

    def _reduce_scatter(self, parameters: LocalParameters) -> _Traffic:
        return self._over(parameters, "reduce_scatter", self._reduce_bytes)

    def _gather(self, parameters: LocalParameters) -> _Traffic:
        return self._over(parameters, "all_gather", self._gather_bytes)

    def _over(self, parameters: LocalParameters, kind: str, width: float) -> _Traffic:
        seconds = moved = 0.0
        for count, group in ((parameters.dense, self._dense), (parameters.expert, self._expert)):
            if group.ranks > 1 and count > 0:
                seconds += self._source.collective(kind, count * width, group)
                moved += count * width * (2 if kind == "all_reduce" else 1) * (group.ranks - 1) / group.ranks
        return _Traffic(seconds, moved)

    def _replica_reduce(self, parameters: LocalParameters) -> float:
        """All-reduce of each shard over the groups that replicate it (hsdp, several optimizer instances)."""
        seconds = 0.0
        pairs = (
            (parameters.dense, self._dense, self._dense_replicas),
            (parameters.expert, self._expert, self._expert_replicas),
        )
        for count, shard, replicas in pairs:
            if replicas.ranks > 1 and count > 0:
                seconds += self._source.collective("all_reduce", count * self._reduce_bytes / shard.ranks, replicas)
        return seconds

    def _contention(self, traffic: _Traffic, window: float) -> float:
        """Concurrent traffic slows compute by the bytes it moves through memory and links."""
        link = self._job.cluster.scale_up.bandwidth
        return self._constants.slowdown * min(traffic.bytes / link, traffic.seconds, window)

    def _optimizer(self, parameters: LocalParameters) -> float:
        """State traffic of the local shard, gradient norm and zeroing, fixed work, and quantized weight copies."""
        job, step = self._job, self._job.constants.step
        hbm = job.cluster.accelerator.hbm_bandwidth
        sharded = self.sharded(parameters)
        moved = state_bytes(job) * sharded
        if not job.plan.sharding.shards_parameters:
            moved += step.optimizer_local_bytes * parameters.total
        factor = step.optimizer_muon if job.plan.optimizer == "muon" else 1.0
        seconds = factor * moved / (step.optimizer_hbm_share * hbm) + step.optimizer_fixed
        if is_quantized(job.plan.precision.compute):
            stream = job.constants.stream
            seconds += stream.weight_cast_bytes * parameters.total / (stream.weight_cast_hbm_share * hbm)
        return seconds

    def sharded(self, parameters: LocalParameters) -> float:
        """Parameters whose optimizer state this rank holds."""
        if not self._job.plan.sharding.shards_optimizer:
            return parameters.total
        return parameters.dense / self._dense.ranks + parameters.expert / self._expert.ranks

    def _optimizer_offload(self, parameters: LocalParameters) -> float:
        """Gradients to the host and weights back over PCIe."""
        plan = self._job.plan
        if plan.offload.optimizer == "none":
            return 0.0
        crossing = BYTES[plan.precision.grads] + BYTES[plan.precision.params]
        return crossing * self.sharded(parameters) / self._job.cluster.host.pcie_bandwidth


def state_bytes(job: Job) -> float:
    """Bytes an optimizer step moves per parameter: gradient read, master and moments read and written, weight too."""
    precision = job.plan.precision
    moments = {"sgd": 1, "muon": 1, "adafactor": 0}.get(job.plan.optimizer, 2)
    state = BYTES["int8"] if job.plan.optimizer == "adam8bit" else BYTES[precision.optimizer_state]
    master = BYTES[precision.master]
    weight = BYTES[precision.params] * (1 if master else 2)
    return BYTES[precision.grads] + 2 * master + 2 * moments * state + weight


def _groups(job: Job, *, expert: bool) -> tuple[Placement, Placement]:
    """The group that shards and the group that replicates each shard, placed on the cluster."""
    parallel, sharding, cluster = job.plan.parallel, job.plan.sharding, job.cluster
    whole = parallel.dp * parallel.cp
    share = sharding.shard_size if sharding.shards_optimizer else whole
    distance = strides(parallel)
    if expert:
        ranks = max(1, parallel.expert_dp)
        shard = max(1, ranks * share // whole) if whole else 1
        stride = expert_strides(parallel)["edp"]
    else:
        ranks, shard, stride = whole, share, min(distance["cp"], distance["dp"])
    return place(shard, stride, cluster), place(max(1, ranks // shard), stride * shard, cluster)


def _sum(parameters: Iterable[LocalParameters]) -> LocalParameters:
    total = LocalParameters(0.0, 0.0)
    for item in parameters:
        total += item
    return total
