"""The suite, a stack of real layers, and both against a projection: ``make measure-gpu``.

On an accelerator: the standard suite into a profile, then a training step of as many layers of Llama-3.1 8B as fit,
measured unit by unit and as a whole. On a CPU the same path runs with small shapes.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Mapping
from typing import Any

from windtunnel.catalog.jobs import job_from_mapping
from windtunnel.catalog.pilots import eager_software
from windtunnel.catalog.profiles import read_profile
from windtunnel.job.job import Job
from windtunnel.measure.harness import Bench
from windtunnel.measure.plan import tasks_of
from windtunnel.measure.ratios import write_ratios
from windtunnel.measure.session import session
from windtunnel.measure.suite import suite
from windtunnel.measure.torch.device import clock, prepare
from windtunnel.measure.torch.peak import peak
from windtunnel.measure.torch.pilot import Pilot
from windtunnel.projection.measured import project_measured
from windtunnel.projection.pilot_memory import anchored_on_pilots
from windtunnel.projection.pilots import pilot
from windtunnel.projection.project import project
from windtunnel.report.measuring import result_line
from windtunnel.units import human_bytes, human_seconds

LARGE: dict[str, Any] = {
    "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
    "vocab_size": 128256,
}  # fmt: skip
SMALL: dict[str, Any] = {
    "hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 704,
    "vocab_size": 1024,
}  # fmt: skip
CPU: dict[str, Any] = {"base": "h100-sxm-80gb", "name": "cpu"}
SUITE_BUDGET = 330.0
STACK_BUDGET = 120.0
"""Seconds of both parts: together below eight minutes."""
STEPS = 9


def stack(layers: int, accelerator: Any, *, small: bool) -> Job:
    """``layers`` layers with embedding and head on one device."""
    sequence = 128 if small else 4096
    model: Mapping[str, Any] = SMALL if small else LARGE
    return job_from_mapping(
        {
            "model": {"name": f"{layers}-layers", "num_layers": layers, **model},
            "cluster": {"accelerator": accelerator, "num_accelerators": 1},
            "software": {"framework": "pytorch-fsdp", "date": "2026-06"},
            "plan": {
                "batch": {"micro_batch_size": 2 if small else 1, "global_batch_size": 2 if small else 1,
                          "sequence_length": sequence},
                "sharding": {"strategy": "ddp"},
                "precision": {"compute": "fp32" if small else "bf16", "params": "fp32" if small else "bf16",
                              "grads": "fp32" if small else "bf16", "master": "none",
                              "optimizer_state": "fp32" if small else "bf16"},
            },
        }
    )  # fmt: skip


def main(arguments: list[str]) -> int:
    """Measure, project, compare; print both errors."""
    parser = argparse.ArgumentParser(prog="measure-gpu", description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--accelerator", default="h200-sxm-141gb", help="catalog name of the device")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--out", default="profile.yaml")
    parser.add_argument("--suite", default="standard")
    asked = parser.parse_args(arguments)
    small = asked.device == "cpu"
    accelerator = CPU if small else asked.accelerator
    bench = Bench(device=asked.device, threads=1 if small else None)
    _measure(suite("smoke" if small else asked.suite), asked.out, bench, SUITE_BUDGET)
    job = stack(6 if small else asked.layers, accelerator, small=small)
    _measure(tasks_of(job), asked.out, bench, STACK_BUDGET)
    write_ratios(job, asked.out, 0)
    _report(pilot(job, job.model.num_layers, eager_software()), asked.out, asked.device)
    return 0


def _measure(tasks: Any, out: str, bench: Bench, budget: float) -> None:
    for result in session(tasks, out, bench, budget):
        sys.stderr.write(result_line(result) + "\n")


def _report(whole: Job, out: str, device: str) -> None:
    """A real step of the whole stack, trained as pilots are, against its projection, and its peak against one anchored
    on pilots of two and four layers."""
    prepare(device, 1 if device == "cpu" else None)
    profile = read_profile(out)
    real = peak(lambda: _steps(whole, device), device)
    trained = Pilot(whole, clock(device))
    for _ in range(3):
        trained.step()
    taken = statistics.median(trained.seconds() for _ in range(STEPS))
    projected, _ = project_measured(whole, profile)
    print(f"step: real {human_seconds(taken)}")
    for name, step in (("with the profile", projected.step_time), ("simulated", project(whole).step_time)):
        print(f"  {name}: {human_seconds(step)} ({100 * (step / taken - 1):+.1f} %)")
    counted = project(whole).memory
    anchored = anchored_on_pilots(whole, counted, profile, eager_software())
    print(f"peak: real {human_bytes(real.allocated)} allocated, {human_bytes(real.reserved)} reserved")
    print(f"  counted: {_compared(counted.peak.allocated, real.allocated)} allocated")
    if anchored is None:
        print("  no pilot was weighed within the budget")
        return
    point = counted.peak.allocated + anchored.live_excess
    print(f"  anchored on pilots: {_compared(point, real.allocated)} allocated, ", end="")
    print(f"{_compared(point + anchored.framework_overhead, real.reserved)} reserved")


def _steps(job: Job, device: str) -> None:
    """Two steps: the first makes the optimizer's state."""
    trained = Pilot(job, clock(device))
    trained.step()
    trained.step()


def _compared(size: float, real: float) -> str:
    return f"{human_bytes(size)} ({100 * (size / real - 1):+.1f} %)"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
