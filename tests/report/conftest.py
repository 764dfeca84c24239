"""A projection built by hand: every figure is known, so that what is rendered can be stated."""

from __future__ import annotations

import pytest
from report_builders import GIB, memory, stage

from windtunnel.catalog.constants import constants
from windtunnel.job.cluster import Accelerator, Cluster, GemmEfficiency, Host, Peaks, ScaleOut, ScaleUp
from windtunnel.job.job import Job, Origin
from windtunnel.job.model import ModelSpec
from windtunnel.job.plan import Batch, Chunk, Parallel, Pipeline, Plan, Precision, Sharding
from windtunnel.job.software import Software
from windtunnel.projection.result import FlopsPerToken, Parameters, Projection, Provenance
from windtunnel.schedule.registry import build_order
from windtunnel.step.parts import Parts
from windtunnel.step.step import StepCosts
from windtunnel.step.timeline import ChunkDurations, execute


@pytest.fixture(scope="session")
def job() -> Job:
    """A four-layer model on two stages of a small machine."""
    accelerator = Accelerator(
        name="toy", vendor="nobody", architecture="toy", peaks=Peaks(bf16=1e15), compute_units=100,
        hbm_capacity=80 * GIB, hbm_bandwidth=3e12, power=700.0,
        gemm=GemmEfficiency(bf16=0.8, fp8=0.7, mxfp8=0.7, fp8_blockwise=0.6, nvfp4=0.5, launch=5e-6),
        attention=(), memory_bound=0.9,
    )  # fmt: skip
    cluster = Cluster(
        accelerator=accelerator,
        num_accelerators=4,
        accelerators_per_node=4,
        scale_up=ScaleUp(kind="nvlink4", domain_size=4, bandwidth=450e9, latency=2e-6),
        scale_out=ScaleOut(kind="none", bandwidth=0.0, latency=0.0),
        host=Host(memory=1e12, pcie_bandwidth=5e10),
    )
    model = ModelSpec(
        name="tiny", num_layers=4, hidden_size=128, vocab_size=1000, num_attention_heads=4, num_key_value_heads=4,
        head_dim=32, intermediate_size=512,
    )  # fmt: skip
    plan = Plan(
        parallel=Parallel(tp=1, pp=2, dp=2),
        pipeline=Pipeline(
            schedule="1f1b",
            virtual_stages=1,
            layout=(Chunk((0, 1), embedding=True), Chunk((2, 3), head=True)),
            microbatch_group_size=2,
        ),
        batch=Batch(micro_batch_size=1, global_batch_size=8, sequence_length=1000),
        sharding=Sharding(strategy="zero1", shard_size=2),
        precision=Precision(
            compute="bf16", params="bf16", grads="fp32", grad_reduce="fp32", master="fp32", optimizer_state="fp32"
        ),
        recompute=(frozenset(),) * 4,
    )
    return Job(
        model=model,
        cluster=cluster,
        software=Software(framework="megatron-core", date="2025-01"),
        plan=plan,
        constants=constants(),
        origin=(
            Origin("plan.overlap.tp_comm", False, "software", "its default"),
            Origin("plan.parallel.dp", 2, "derived", "4 / (1 · 1 · 2)"),
            Origin("software.date", "2025-01", "neutral", "newest known"),
        ),
        warnings=("intermediate sizes are small",),
    )


@pytest.fixture(scope="session")
def projection(job: Job) -> Projection:
    """A step of two seconds: 1.2 s compute, 0.3 s exposed tp, 0.5 s bubble; peak 62 GiB of 80 on stage 0."""
    return Projection(
        job=job,
        step_time=2.0,
        tokens_per_second=4000.0,
        tokens_per_second_per_accelerator=1000.0,
        flops_per_token=FlopsPerToken(causal_half=4e11, full_attention=5e11, hardware=6e11, six_nd=3e11),
        model_flops_per_second_per_accelerator=4e14,
        mfu=0.4,
        peak_flops=1e15,
        time=Parts(compute=1.2, tp=0.3, bubble=0.5),
        hidden_communication={"tp": 0.0, "cp": 0.0, "ep": 0.0, "etp": 0.0, "pp": 0.0, "dp": 0.25},
        memory=memory(stage(0, 30.0, 2.0), stage(1, 20.0, 1.0)),
        parameters=Parameters(total=2_000_000_000, active=1_500_000_000, per_stage=(1_000_000_000, 1_000_000_000)),
        schedule_name="1f1b",
        bubble_fraction=0.25,
        num_microbatches=4,
        busiest_stage=0,
        provenance=Provenance(),
        costs=StepCosts(chunks=(), additions=(), transfer=0.0, jitter=1.0),
        timeline=execute(build_order("1f1b", 2, 4), [ChunkDurations(1, 1, 1)] * 2),
        warnings=("intermediate sizes are small", "attention has no figures on this part"),
    )
