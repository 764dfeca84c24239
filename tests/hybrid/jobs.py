"""Small jobs on two ranks of one CPU: three model shapes under eight plans."""

from __future__ import annotations

from typing import Any

from windtunnel.catalog.jobs import job_from_mapping
from windtunnel.job.job import Job

CPU_CORE: dict[str, Any] = {
    "name": "cpu-core",
    "vendor": "intel",
    "architecture": "x86",
    "peaks": {"fp32": "0.1 TFLOP/s", "bf16": "0.2 TFLOP/s"},
    "compute_units": 1,
    "hbm_capacity": "8 GiB",
    "hbm_bandwidth": "10 GB/s",
    "scale_up": {"kind": "pcie", "domain_size": 2, "bandwidth": "1 GB/s", "latency": "100 us"},
    "gemm": {"bf16": 0.7, "launch": "5 us"},
    "attention": [{"kernel": "sdpa", "forward": 0.4, "backward": 0.4, "half_length": 100}],
    "memory_bound": 0.7,
}
"""One core by its data sheet: two 16-wide fp32 units near 3 GHz, a share of the memory's rate."""

DENSE = {
    "name": "dense", "num_layers": 4, "hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 704, "vocab_size": 1024,
}  # fmt: skip
EXPERTS = {
    **DENSE,
    "name": "experts",
    "moe": {"num_experts": 4, "num_experts_per_token": 2, "moe_intermediate_size": 384},
}
WIDE = {**DENSE, "name": "wide", "vocab_size": 12288}
MODELS = {"dense": DENSE, "experts": EXPERTS, "wide": WIDE}

PLANS: dict[str, dict[str, Any]] = {
    "ddp": {"sharding": {"strategy": "ddp"}, "overlap": {"grad_reduce": True}, "batch": 4},
    "ddp-2": {"sharding": {"strategy": "ddp"}, "overlap": {"grad_reduce": True}, "batch": 8},
    "fsdp": {"sharding": {"strategy": "fsdp"}, "batch": 4},
    "fsdp-2": {"sharding": {"strategy": "fsdp"}, "batch": 8},
    "tp": {"parallel": {"tp": 2, "sequence_parallel": False}, "batch": 2},
    "tp-sp": {"parallel": {"tp": 2, "sequence_parallel": True}, "batch": 2},
    "1f1b": {"parallel": {"pp": 2}, "pipeline": {"schedule": "1f1b"}, "batch": 8},
    "zbv": {"parallel": {"pp": 2}, "pipeline": {"schedule": "zbv"}, "batch": 8},
}
"""Sequences a step under ``batch``; the rest as the job format has it. FSDP on a CPU waits for its traffic."""


PILOTS: dict[str, dict[str, Any]] = {
    "pilot-2": {"num_layers": 2, "batch": 4},
    "pilot-4": {"num_layers": 4, "batch": 4},
}
"""Two and four layers on one core: real steps that their own profile must reproduce."""


def job_of(model: str, plan: str) -> Job:
    """A job in fp32, sequences of 128 tokens, two a micro-batch: a plan on two cores, or a pilot on one."""
    spelled = dict(PILOTS[plan] if plan in PILOTS else PLANS[plan])
    num_layers = spelled.pop("num_layers", None)
    batch = spelled.pop("batch")
    described = MODELS[model] | ({} if num_layers is None else {"num_layers": num_layers})
    return job_from_mapping(
        {
            "model": described,
            "cluster": {
                "accelerator": CPU_CORE,
                "num_accelerators": 1 if plan in PILOTS else 2,
                "accelerators_per_node": 2,
            },
            "software": {"framework": "torchtitan", "date": "2026-06", "attention": "sdpa"},
            "plan": {
                "parallel": {},
                "sharding": {"strategy": "ddp"},
                "overlap": {"grad_reduce": False, "param_gather": False},
                "precision": {"compute": "fp32", "grad_reduce": "fp32"},
                "loss": {"implementation": "native"},
                "recompute": {"policy": "none"},
                "batch": {"micro_batch_size": 2, "global_batch_size": batch, "sequence_length": 128},
                **spelled,
            },
        }
    )


CONFIGURATIONS = [(model, plan) for model in MODELS for plan in PLANS if (model, plan) != ("experts", "tp")]
"""Experts beside tensor parallelism need each token on one rank, that is sequence parallelism."""
PILOTED = [(model, pilot) for model in MODELS for pilot in PILOTS]
