"""A step on the back of an envelope: FLOPs, bytes on each wire, idle stages. It decides what is tried first, no more.

Every term is a textbook one, at round rates that are not fitted to anything (``search.rates``): the point is the order
of plans, for a proposer that must not ask the oracle. Seconds; degrees as in the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from windtunnel.job.job import Job
from windtunnel.memory.states import ByteRates, byte_rates
from windtunnel.ops.weights import active_parameters, total_parameters
from windtunnel.projection.choices import (
    ACTIVATION_OFFLOAD,
    CP_COMM,
    DISPATCHER,
    EP_COMM,
    GRAD_REDUCE,
    OPTIMIZER_OFFLOAD,
    P2P,
    PARAM_GATHER,
    RECOMPUTE,
    SHARDING,
    TP_COMM,
)
from windtunnel.search.inner import SHARES
from windtunnel.search.rates import EnvelopeRates, Rates
from windtunnel.search.space import BALANCED, LAYOUT, SCHEDULE, VIRTUAL_STAGES

Value = Callable[[str], Any]
"""A plan: its value at a job path."""

VALUES = (
    "cluster.num_accelerators", *(f"plan.parallel.{name}" for name in ("tp", "cp", "pp", "ep", "etp", "order")),
    "plan.parallel.sequence_parallel", "plan.batch.micro_batch_size", "plan.batch.global_batch_size",
    "plan.batch.sequence_length", SCHEDULE, VIRTUAL_STAGES, LAYOUT, RECOMPUTE, SHARDING, DISPATCHER, ACTIVATION_OFFLOAD,
    OPTIMIZER_OFFLOAD, TP_COMM, CP_COMM, EP_COMM, P2P, GRAD_REDUCE, PARAM_GATHER,
)  # fmt: skip
"""The paths an envelope asks a plan for."""
FORWARD = 1 / 3
"""Share of a step's FLOPs that is forward: a backward is two."""
SHARED = frozenset({"fsdp", "hsdp", "zero3"})
"""Strategies that gather the weights for every use."""
HALF, SINGLE = 2, 4
"""Bytes of a number in 16 and 32 bits."""


def recomputed(value: Mapping[str, Any], chunk_layers: float, rates: Rates) -> float:
    """The share of the forward that a recompute section executes again, for chunks of so many layers."""
    policy, size, shares = str(value.get("policy")), value.get("num_layers"), rates.recompute
    if policy == "block":
        return min(1.0, (chunk_layers if size is None else float(size)) / chunk_layers)
    if policy == "modules":
        return min(1.0, sum(rates.modules.get(module, shares.light) for module in value.get("modules", ())))
    return {"none": 0.0, "selective": shares.selective, "per_op": shares.per_op}.get(policy, 1.0)


def share(value: Any) -> float:
    """A share of the activations, in a word or a number."""
    return float(SHARES.get(value, value))


@dataclass(frozen=True)
class Envelope:
    """Estimates for plans of one job."""

    job: Job
    rates: Rates

    @cached_property
    def _experts(self) -> float:
        """Parameters of all routed experts."""
        model = self.job.model
        if model.moe is None:
            return 0.0
        layers = sum(layer.feed_forward == "moe" for layer in model.layers)
        matrices = 3 if model.gated else 2
        return float(layers * model.moe.num_experts * matrices * model.hidden_size * model.moe.moe_intermediate_size)

    @cached_property
    def _dense(self) -> float:
        return total_parameters(self.job.model) - self._experts

    @cached_property
    def _active(self) -> float:
        return float(active_parameters(self.job.model, embedding=False, head=True))

    @cached_property
    def _head_layers(self) -> float:
        """The head in layers of equal work."""
        model = self.job.model
        head = model.vocab_size * model.hidden_size
        return head / max(1.0, (self._active - head) / model.num_layers)

    def seconds(self, value: Value) -> float:
        """The step of a plan."""
        grid = _Grid(value)
        micro_batches = grid.batch / (grid.replicas * grid.micro)
        work = self._compute(grid) + self._tensor(grid) + self._context(grid) + self._expert(grid)
        work = (work + self._weights(grid)) * self._slowest(grid) + self._hops(grid)
        if grid.strategy in SHARED:
            shown = (1 - self._rate.hidden) * self._rate.shown_gathers
            work = max(work + shown * self._gathers(grid), self._gathers(grid))
        idle = (grid.pp - 1) * self._idle(grid)
        return work * (micro_batches + idle) + self._gradients(grid) + self._optimizer(grid)

    def bytes_of_states(self, value: Value) -> float:
        """What a rank keeps of weights, gradients and optimizer states, on the mean of all stages."""
        grid, size = _Grid(value), self._sizes
        local, replicas = self._local(grid), grid.replicas * grid.cp
        shared = grid.strategy in SHARED
        gradients = size.gradient / (replicas if shared or grid.strategy == "zero2" else 1)
        states = 0.0 if grid.on_host else (size.master + size.moments) / (1 if grid.strategy == "ddp" else replicas)
        return local * (size.weight / (replicas if shared else 1) + gradients + states)

    def bytes_kept(self, value: Value) -> float:
        """Activations of the micro-batches in flight on the first stage."""
        grid, model = _Grid(value), self.job.model
        heads = (model.num_attention_heads + 2 * model.num_key_value_heads) * model.head_dim
        experts = model.moe.num_experts_per_token * model.moe.moe_intermediate_size if model.moe else 0
        wide = 4 * model.hidden_size + heads + 2 * (experts or model.intermediate_size)
        chunk = model.num_layers / (grid.pp * grid.virtual)
        kept = wide * (1 - recomputed(grid.recompute, chunk, self.rates)) + model.hidden_size
        in_flight = 1 + (grid.pp - 1) / (grid.pp * grid.virtual) if grid.virtual > 1 else 1.0
        most = min(1.0, grid.batch / (grid.replicas * grid.micro) / grid.pp)
        layers = model.num_layers * (in_flight * most if grid.pp > 1 else 1.0)
        return HALF * kept * layers * self._tokens(grid) / grid.tp * (1 - grid.activations)

    def bytes_surely_kept(self, value: Value) -> float:
        """As many of the activations as there are also where the guess of them is far too large."""
        return self.bytes_kept(value) * self._rate.kept_certain

    @cached_property
    def _sizes(self) -> ByteRates:
        return byte_rates(self.job)

    @property
    def _rate(self) -> EnvelopeRates:
        return self.rates.envelope

    def _local(self, grid: _Grid) -> float:
        """Parameters of a rank before its replicas share them."""
        return self._dense / (grid.tp * grid.pp) + self._experts / (grid.ep * grid.etp * grid.pp)

    def _tokens(self, grid: _Grid) -> float:
        """Of one micro-batch on one rank; tp shares their work."""
        return grid.micro * grid.tokens / grid.cp

    def _compute(self, grid: _Grid) -> float:
        """One micro-batch on one stage: 6 FLOPs a parameter and token, the causal half of the scores, and what is
        executed again; and the element-wise traffic, which tp divides with sequence parallelism only."""
        model, accelerator = self.job.model, self.job.cluster.accelerator
        heads = model.num_attention_heads * model.head_dim
        flops = 6 * (self._active + model.num_layers * heads * grid.tokens) * self._tokens(grid) / (grid.tp * grid.pp)
        again = 1 + FORWARD * recomputed(grid.recompute, model.num_layers / (grid.pp * grid.virtual), self.rates)
        moved = 3 * self._rate.layer_bytes * model.hidden_size * model.num_layers * self._tokens(grid) / grid.pp
        moved /= grid.tp if grid.sequence_parallel else 1
        busy = flops / (accelerator.peaks.half * accelerator.gemm.bf16)
        busy += moved / (accelerator.hbm_bandwidth * accelerator.memory_bound)
        width = self._rate.offloaded_width * model.hidden_size
        offloaded = HALF * width * model.num_layers * self._tokens(grid) * grid.activations
        return busy * again + offloaded / grid.pp / self.job.cluster.host.pcie_bandwidth

    def _weights(self, grid: _Grid) -> float:
        """The gradient of every weight added to, for every micro-batch; reading weights hides behind their FLOPs."""
        accelerator = self.job.cluster.accelerator
        return 2 * SINGLE * self._local(grid) / (accelerator.hbm_bandwidth * accelerator.memory_bound)

    def _tensor(self, grid: _Grid) -> float:
        """Two all-reduces a layer, forward and backward; with experts that are not split, one."""
        if grid.tp == 1:
            return 0.0
        model = self.job.model
        reduces = 2 if model.is_moe and grid.etp == 1 else 4
        sent = 2 * reduces * model.num_layers / grid.pp * self._tokens(grid) * model.hidden_size * HALF
        shown = 1 - self._rate.hidden * self._rate.hidden_tensor if grid.sequence_parallel and grid.tp_comm else 1.0
        return shown * sent * (grid.tp - 1) / grid.tp / self._wire(grid.tp)

    def _context(self, grid: _Grid) -> float:
        """Keys and values around the ring: once forward, twice backward."""
        if grid.cp == 1:
            return 0.0
        model = self.job.model
        width = 2 * model.num_key_value_heads * model.head_dim / grid.tp * HALF
        sent = 3 * model.num_layers / grid.pp * self._tokens(grid) * width * (grid.cp - 1)
        return sent * (1 - self._rate.hidden if grid.cp_comm else 1.0) / self._wire(grid.tp * grid.cp, grid.tp)

    def _expert(self, grid: _Grid) -> float:
        """Tokens to their experts and back, forward and backward; a dispatcher that knows nodes sends a token to each
        node once."""
        moe = self.job.model.moe
        if moe is None or grid.ep == 1:
            return 0.0
        domain, reach = self.job.cluster.scale_up.domain_size, grid.ep * grid.etp
        copies = float(moe.num_experts_per_token)
        if grid.dispatcher != "alltoall" and reach > domain:
            copies = min(copies, reach / domain)
        rows = self._tokens(grid) / grid.tp * copies * (grid.ep - 1) / grid.ep
        layers = sum(layer.feed_forward == "moe" for layer in self.job.model.layers) / grid.pp
        sent = 4 * layers * rows * self.job.model.hidden_size * HALF
        shown = 1 - self._rate.hidden if grid.ep_comm else 1.0
        return sent * shown / self._wire(reach, reach) * self._rate.reached / self._rate.exchanged

    def _wire(self, ranks: float, stride: float = 1) -> float:
        """Bytes/s of a rank in a ring whose members, ``stride`` apart, span so many neighbours: those of one domain
        share its ways out, and what comes in is handed on inside."""
        cluster = self.job.cluster
        domain = cluster.scale_up.domain_size
        if ranks <= domain or not cluster.scale_out.bandwidth:
            return self._rate.reached * cluster.scale_up.bandwidth
        inside = max(1.0, domain / stride)
        return self._rate.reached * min(cluster.scale_up.bandwidth, inside * cluster.scale_out.bandwidth)

    def _hops(self, grid: _Grid) -> float:
        """Activations to the next stage and their gradients back, for one micro-batch."""
        if grid.pp == 1:
            return 0.0
        rows = self._tokens(grid) / (grid.tp if grid.sequence_parallel else 1)
        sent = 2 * grid.virtual * rows * self.job.model.hidden_size * HALF
        stride = grid.world / grid.pp if grid.pipeline_last else grid.tp * grid.cp
        return sent * (1 - self._rate.hidden if grid.p2p and grid.virtual > 1 else 1.0) / self._wire(2 * stride, stride)

    def _slowest(self, grid: _Grid) -> float:
        """Work of the fullest stage over the mean of all: layers are whole, and the head is work too."""
        layers, head = self.job.model.num_layers, self._head_layers
        mean = (layers + head) / grid.pp
        if grid.layout == BALANCED:
            return max(1.0, -(-layers // grid.pp) / mean)
        even = -(-layers // (grid.pp * grid.virtual)) * grid.virtual
        return (even + head) / mean if grid.pp > 1 else 1.0

    def _idle(self, grid: _Grid) -> float:
        """Micro-batches' worth of waiting for each other stage."""
        return self.rates.bubble.get(grid.schedule, 1 / grid.virtual)

    def _gathers(self, grid: _Grid) -> float:
        """Sharded weights gathered forward and backward and their gradients reduced, for every micro-batch."""
        return self._shared(grid, 2 * HALF + SINGLE)

    def _gradients(self, grid: _Grid) -> float:
        """Gradients reduced over replicas and weights gathered again, where that is done once a step."""
        if grid.strategy in SHARED:
            return 0.0
        second = SINGLE if grid.strategy == "ddp" else HALF
        second_hidden = grid.grad_reduce if grid.strategy == "ddp" else grid.param_gather
        hidden = self._rate.hidden
        reduced = self._shared(grid, SINGLE) * (1 - hidden * grid.grad_reduce)
        return reduced + self._shared(grid, second) * (1 - hidden * second_hidden)

    def _shared(self, grid: _Grid, size: float) -> float:
        """``size`` bytes of every parameter of a rank sent once among its replicas."""
        replicas = grid.replicas * grid.cp
        wire = self._wire(*((grid.world / grid.pp, grid.tp) if grid.pipeline_last else (grid.world, grid.tp * grid.pp)))
        return size * self._local(grid) * (replicas - 1) / replicas / wire

    def _optimizer(self, grid: _Grid) -> float:
        """Every state read and written on the device, or gradients and weights sent to those on the host."""
        local = self._local(grid) / (1 if grid.strategy == "ddp" else grid.replicas * grid.cp)
        cluster = self.job.cluster
        if grid.on_host:
            return local * self._rate.host_bytes / cluster.host.pcie_bandwidth
        return local * self._rate.state_bytes / (cluster.accelerator.hbm_bandwidth * cluster.accelerator.memory_bound)


class _Grid:
    """The values of a plan that matter here."""

    def __init__(self, value: Value) -> None:
        self.world = int(value("cluster.num_accelerators"))
        self.tp, self.cp, self.pp, self.ep, self.etp = (
            int(value(f"plan.parallel.{name}")) for name in ("tp", "cp", "pp", "ep", "etp")
        )
        self.replicas = self.world / (self.tp * self.cp * self.pp)
        self.micro = int(value("plan.batch.micro_batch_size"))
        self.batch = int(value("plan.batch.global_batch_size"))
        self.tokens = int(value("plan.batch.sequence_length"))
        self.sequence_parallel = bool(value("plan.parallel.sequence_parallel"))
        self.pipeline_last = str(value("plan.parallel.order")).endswith("pp")
        self.schedule, self.virtual = str(value(SCHEDULE)), int(value(VIRTUAL_STAGES))
        self.layout = value(LAYOUT)
        again = value(RECOMPUTE)
        self.recompute: Mapping[str, Any] = again if isinstance(again, Mapping) else {"policy": again}
        self.strategy, self.dispatcher = str(value(SHARDING)), str(value(DISPATCHER))
        self.activations = share(value(ACTIVATION_OFFLOAD))
        self.on_host = value(OPTIMIZER_OFFLOAD) != "none"
        self.tp_comm, self.cp_comm, self.ep_comm, self.p2p = (bool(value(p)) for p in (TP_COMM, CP_COMM, EP_COMM, P2P))
        self.grad_reduce, self.param_gather = bool(value(GRAD_REDUCE)), bool(value(PARAM_GATHER))
