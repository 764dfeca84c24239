"""Gradient reduction, parameter gathering and the optimizer: what a step adds to its pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from windtunnel.cost.collectives.placement import Placement, expert_strides, place, strides
from windtunnel.cost.source import CostSource
from windtunnel.dtypes import BYTES, activation, is_quantized
from windtunnel.elementwise import TINY, Number, maximum
from windtunnel.job.constants import Constants, DataParallelConstants
from windtunnel.job.job import Job
from windtunnel.ops.chunk import LocalParameters
from windtunnel.step.chunk import ChunkCost
from windtunnel.step.contention import contention
from windtunnel.step.host import launch_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAddition:
    """Seconds a stage adds after its part of the pipeline: numbers, or arrays over plans.

    Data-parallel traffic is to reduce gradients and to gather parameters; ``exposed`` and ``hidden`` count both.
    """

    exposed: Number
    hidden: Number
    contention: Number
    exposed_gather: Number = 0.0
    hidden_gather: Number = 0.0
    optimizer: Number = 0.0
    offload: Number = 0.0

    @property
    def total(self) -> Number:
        return self.exposed + self.contention + self.optimizer + self.offload


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Seconds of data-parallel collectives over some parameters, and the bytes this rank sends in them; ``cut_reduce``
    and ``cut_gather`` are what they take more bucket by bucket, as software does that overlaps them."""

    reduce: Number
    reduce_bytes: Number
    gather: Number
    gather_bytes: Number
    replicas: Number
    cut_reduce: Number
    cut_gather: Number


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """What hides the traffic of a step: a stage's forward and backward of one micro-batch, and what the software
    overlaps (1 or 0). ``growth`` lengthens the windows by the cool-down of a pipeline; ``reductions`` counts how often
    a step reduces the gradients."""

    forward: Number
    backward: Number
    growth: float
    buckets: Number
    grad_reduce: Number
    param_gather: Number
    reductions: Number


def once_a_step(traffic: Traffic, windows: Windows, constants: Constants, link: float) -> StepAddition:
    """Reduction behind the last backward and gathering behind the first forward, in buckets."""
    rates, slowdown = constants.data_parallel, constants.collective.slowdown
    forward, backward = windows.forward * windows.growth, windows.backward * windows.growth
    seconds = traffic.reduce + traffic.replicas + windows.grad_reduce * traffic.cut_reduce
    gathering = traffic.gather + windows.param_gather * traffic.cut_gather
    reduce = exposed(seconds, backward, windows.buckets, windows.grad_reduce, rates) * windows.reductions
    gather = exposed(gathering, forward, windows.buckets, windows.param_gather, rates)
    busy = contention(traffic.reduce_bytes, seconds, backward * windows.grad_reduce, slowdown, link)
    busy = busy + contention(traffic.gather_bytes, gathering, forward * windows.param_gather, slowdown, link)
    late = reduce + gather
    return StepAddition(
        exposed=late,
        hidden=maximum(seconds + gathering - late, 0.0),
        contention=busy,
        exposed_gather=gather,
        hidden_gather=gathering - gather,
    )


def by_unit(
    units: Sequence[tuple[Traffic, float, float, int]],
    constants: Constants,
    link: float,
    overlapped: float = 1.0,
) -> StepAddition:
    """FSDP for one micro-batch: each unit's gather runs beside the unit before it, its reduction beside the next.

    ``units``: traffic, forward and backward seconds, and occurrences. The first gather and the last reduction have
    nothing to hide behind, and nothing has where the software waits for its traffic (``overlapped`` 0). Beside a
    backward run both, and what outlasts it is shared as their seconds are.
    """
    late: Number = 0.0
    late_gather: Number = 0.0
    gathers: Number = 0.0
    busy: Number = 0.0
    total: Number = 0.0
    hide, slowdown = constants.data_parallel.fsdp_hidden * overlapped, constants.collective.slowdown
    for traffic, forward, backward, occurrences in units:
        both = traffic.gather + traffic.reduce
        ahead, beside = maximum(traffic.gather - hide * forward, 0.0), maximum(both - hide * backward, 0.0)
        slows = contention(traffic.gather_bytes, traffic.gather, forward, slowdown, link)
        slows = slows + contention(traffic.gather_bytes + traffic.reduce_bytes, both, backward, slowdown, link)
        late, busy = late + occurrences * (ahead + beside), busy + overlapped * occurrences * slows
        total = total + occurrences * (traffic.gather + both)
        late_gather = late_gather + occurrences * (ahead + beside * traffic.gather / maximum(both, TINY))
        gathers = gathers + occurrences * 2 * traffic.gather
    if units:
        late = late + overlapped * (units[0][0].gather + units[0][0].reduce)
        late_gather = late_gather + overlapped * units[0][0].gather
    return StepAddition(
        exposed=late,
        hidden=maximum(total - late, 0.0),
        contention=busy,
        exposed_gather=late_gather,
        hidden_gather=maximum(gathers - late_gather, 0.0),
    )


def by_layer(
    job: Job, units: Sequence[tuple[Traffic, float, float, int]], backward: float, link: float, overlapped: float
) -> StepAddition:
    """FSDP over a step: every micro-batch gathers and reduces, replicas reduce once behind the last backward."""
    m = job.plan.num_microbatches
    each = by_unit(units, job.constants, link, overlapped)
    replicas: Number = sum(traffic.replicas * n for traffic, _, _, n in units)
    late = exposed(replicas, backward, float(max(1, len(units))), 1.0, job.constants.data_parallel)
    return StepAddition(
        exposed=m * each.exposed + late,
        hidden=m * each.hidden + replicas - late,
        contention=m * each.contention,
        exposed_gather=m * each.exposed_gather,
        hidden_gather=m * each.hidden_gather,
    )


def exposed(
    seconds: Number, window: Number, buckets: Number, overlapped: Number, rates: DataParallelConstants
) -> Number:
    """What is left of a collective that a window hides; its last bucket always is. Without overlap: all of it."""
    late = maximum(seconds - rates.reduce_hidden * window, seconds / buckets)
    return overlapped * late + (1 - overlapped) * seconds


class DataParallel:
    """Prices the data-parallel traffic and the optimizer of one job, stage by stage."""

    def __init__(self, job: Job, source: CostSource) -> None:
        self._job = job
        self._source = source
        self._dense, self._dense_replicas = _groups(job, expert=False)
        self._expert, self._expert_replicas = _groups(job, expert=True)

    def addition(self, stage: tuple[ChunkCost, ...]) -> StepAddition:
        """What the stage made of these chunks adds to the step."""
        parameters = _sum(chunk.parameters for chunk in stage)
        layered = self._job.plan.sharding.shards_parameters and self._job.plan.parallel.pp == 1
        traffic = self._by_layer(stage) if layered else self._by_step(stage, parameters)
        sharded, plan = self.sharded(parameters), self._job.plan
        return replace(
            traffic,
            optimizer=self._optimizer(sharded, parameters),
            offload=offload_seconds(self._job, sharded, float(plan.offload.optimizer != "none")),
        )

    def _optimizer(self, sharded: float, parameters: LocalParameters) -> float:
        """Seconds of the optimizer: as the source measured it, else by the state it moves."""
        measured = self._source.optimizer(self._job, sharded)
        if measured is not None:
            return measured
        whole = float(not self._job.plan.sharding.shards_parameters)
        seconds: float = optimizer_seconds(self._job, sharded, parameters.total, whole)
        return seconds

    def _by_step(self, stage: tuple[ChunkCost, ...], parameters: LocalParameters) -> StepAddition:
        plan = self._job.plan
        switches = float(plan.overlap.grad_reduce), float(plan.overlap.param_gather)
        forward, backward = sum(chunk.forward.total for chunk in stage), sum(chunk.backward for chunk in stage)
        repeated = reductions(self._job, plan.sharding.strategy)
        windows = self.windows(forward, backward, parameters.total, *switches, repeated)
        return once_a_step(self.traffic(parameters), windows, self._job.constants, self.link)

    def windows(
        self,
        forward: Number,
        backward: Number,
        parameters: Number,
        grad_reduce: Number,
        param_gather: Number,
        reductions: Number,
    ) -> Windows:
        """What a stage of these seconds a micro-batch offers to hide traffic behind."""
        plan = self._job.plan
        growth = 1.0
        if plan.parallel.pp > 1:
            window_growth = self._job.constants.data_parallel.window_growth
            growth += window_growth * (plan.parallel.pp - 1) / plan.pipeline.virtual_stages
        return Windows(
            forward=forward,
            backward=backward,
            growth=growth,
            buckets=self._buckets(parameters),
            grad_reduce=grad_reduce,
            param_gather=param_gather,
            reductions=reductions,
        )

    def _by_layer(self, stage: tuple[ChunkCost, ...]) -> StepAddition:
        counted = [unit for chunk in stage for unit in chunk.units]
        units = [(self.traffic(u.parameters), u.cost.forward.total, u.cost.backward, u.occurrences) for u in counted]
        backward = sum(chunk.backward for chunk in stage)
        overlap = self._job.plan.overlap
        overlapped = float(overlap.param_gather or overlap.grad_reduce)
        return by_layer(self._job, units, backward, self.link, overlapped)

    def traffic(self, parameters: LocalParameters) -> Traffic:
        """Seconds and bytes to reduce the gradients and gather the weights of local parameters, replicas apart."""
        sharding = self._job.plan.sharding
        kind = "reduce_scatter" if sharding.shards_optimizer else "all_reduce"
        buckets = float(self._buckets(parameters.total))
        reduce, reduce_bytes = self._over(parameters, kind, self._reduce_bytes)
        cut_reduce = self._over(parameters, kind, self._reduce_bytes, buckets)[0] - reduce
        gather = gather_bytes = cut_gather = 0.0
        if sharding.shards_optimizer:
            gather, gather_bytes = self._over(parameters, "all_gather", self._gather_bytes)
            cut_gather = self._over(parameters, "all_gather", self._gather_bytes, buckets)[0] - gather
        return Traffic(
            reduce=reduce,
            reduce_bytes=reduce_bytes,
            gather=gather,
            gather_bytes=gather_bytes,
            replicas=self._replica_reduce(parameters),
            cut_reduce=cut_reduce,
            cut_gather=cut_gather,
        )

    def _buckets(self, parameters: Number) -> Number:
        return maximum(1.0, parameters * self._reduce_bytes / self._job.software.traits.gradient_bucket)

    @property
    def link(self) -> float:
        return self._job.cluster.scale_up.bandwidth

    @property
    def _reduce_bytes(self) -> float:
        return BYTES[self._job.plan.precision.grad_reduce]

    @property
    def _gather_bytes(self) -> float:
        precision = self._job.plan.precision
        return BYTES["fp8"] if precision.params == "fp8" else BYTES[activation(precision.compute)]

    def _over(self, parameters: LocalParameters, kind: str, width: float, buckets: float = 1.0) -> tuple[float, float]:
        """Seconds and bytes of a collective over the parameters, in as many equal pieces as there are buckets."""
        seconds = moved = 0.0
        for count, group in ((parameters.dense, self._dense), (parameters.expert, self._expert)):
            if group.ranks > 1 and count > 0:
                seconds += buckets * self._source.collective(kind, count * width / buckets, group)
                moved += count * width * (2 if kind == "all_reduce" else 1) * (group.ranks - 1) / group.ranks
        return seconds, moved

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

    def sharded(self, parameters: LocalParameters) -> float:
        """Parameters whose optimizer state this rank holds."""
        if not self._job.plan.sharding.shards_optimizer:
            return parameters.total
        return parameters.dense / self._dense.ranks + parameters.expert / self._expert.ranks


def reductions(job: Job, strategy: str) -> int:
    """Gradient reductions of a step: sharded gradients are reduced after every micro-batch, others once."""
    every = strategy == "zero2" and job.plan.parallel.pp == 1
    return job.plan.num_microbatches if every else 1


def optimizer_seconds(job: Job, sharded: Number, local: float, whole: Number) -> Number:
    """State traffic of ``sharded`` parameters, fixed work, quantized weight copies of all ``local`` ones, and where a
    rank has them ``whole`` (1 or 0) their gradient norm and zeroing."""
    step, hbm = job.constants.step, job.cluster.accelerator.hbm_bandwidth
    moved = state_bytes(job) * sharded + whole * 2 * BYTES[job.plan.precision.grads] * local
    factor = step.optimizer_muon if job.plan.optimizer == "muon" else 1.0
    seconds = factor * moved / (job.cluster.accelerator.memory_bound * hbm) + step.optimizer_fixed
    if is_quantized(job.plan.precision.compute):
        stream = job.constants.stream
        seconds = seconds + stream.weight_cast_bytes * local / (stream.weight_cast_hbm_share * hbm)
    return seconds + packing_seconds(job, local / maximum(sharded, 1.0))


def packing_seconds(job: Job, ranks: Number) -> Number:
    """What a host launches to pack gradients for ``ranks`` shards and unpack parameters from them, tensor by tensor."""
    if not job.software.traits.packs_by_rank:
        return 0.0
    tensors = TENSORS_OF_A_LAYER * job.model.num_layers / job.plan.parallel.pp
    return 2 * launch_seconds(job) * tensors * (ranks - 1)


TENSORS_OF_A_LAYER = 6
"""Two norms and four matrices: huggingface/nanotron @2411b02 src/nanotron/models/llama.py."""


def offload_seconds(job: Job, sharded: Number, on_host: Number) -> Number:
    """An optimizer on the host (1 or 0): gradients go there and weights come back over PCIe."""
    crossing = BYTES[job.plan.precision.grads] + BYTES[job.plan.precision.params]
    return on_host * crossing * sharded / job.cluster.host.pcie_bandwidth


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
