"""Speed against the budgets: ``make bench`` prints each figure beside what it may be.

Process figures are the median of fresh interpreters; in-process ones are warm.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAIN = ROOT / "examples" / "llama3.1-70b-64-h100.yaml"
COMMAND = [sys.executable, "-c", "from windtunnel.cli import main; main()"]

BUDGETS = {
    "import windtunnel": 0.060,
    "windtunnel --help": 0.250,
    "windtunnel project, cold": 0.600,
    "project, 1F1B p=16 m=128, in process": 0.010,
    "timeline, 1F1B p=16 m=128": 0.010,
    "memory of one plan, in process": 0.002,
}
"""Seconds."""

STAGES, MICROBATCHES = 16, 128


@pytest.fixture(scope="module", autouse=True)
def figures(request):
    """Collects the medians and prints them beside the budgets when the file is done."""
    found: dict[str, float] = {}
    yield found
    lines = [
        f"  {name:<40}{1e3 * seconds:9.2f} ms   budget {1e3 * BUDGETS[name]:7.1f} ms   "
        f"{'ok' if seconds <= BUDGETS[name] else 'OVER'}"
        for name, seconds in found.items()
    ]
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        sys.stdout.write("\n" + "\n".join(lines) + "\n")


def process(*arguments: str) -> None:
    subprocess.run([*arguments], check=True, stdout=subprocess.DEVNULL, cwd=ROOT)


def bare_interpreter(rounds: int = 10) -> float:
    """Median seconds of an interpreter that does nothing: not ours to spend."""
    from statistics import median
    from time import perf_counter

    def once() -> float:
        start = perf_counter()
        process(sys.executable, "-c", "pass")
        return perf_counter() - start

    return median(once() for _ in range(rounds))


def test_import(benchmark, figures):
    benchmark.pedantic(process, args=(sys.executable, "-c", "import windtunnel"), rounds=10, warmup_rounds=1)
    figures["import windtunnel"] = benchmark.stats.stats.median - bare_interpreter()


def test_help(benchmark, figures):
    benchmark.pedantic(process, args=(*COMMAND, "--help"), rounds=10, warmup_rounds=1)
    figures["windtunnel --help"] = benchmark.stats.stats.median


def test_cold_projection(benchmark, figures):
    benchmark.pedantic(process, args=(*COMMAND, "project", str(MAIN)), rounds=5, warmup_rounds=1)
    figures["windtunnel project, cold"] = benchmark.stats.stats.median


def test_projection_in_process(benchmark, figures):
    from windtunnel import Job, load_job, project

    job = load_job(
        str(MAIN),
        set={
            "plan.parallel.tp": 4, "plan.parallel.cp": 1, "plan.parallel.pp": STAGES, "plan.parallel.dp": 1,
            "plan.pipeline.schedule": "1f1b", "plan.pipeline.virtual_stages": 1,
            "plan.batch.global_batch_size": MICROBATCHES,
        },
    )  # fmt: skip
    assert job.plan.num_microbatches == MICROBATCHES
    variants = count(1)

    def unseen() -> tuple[tuple[Job], dict[str, object]]:
        """A job whose costs no cache knows; the order, being the same, may come from one."""
        accelerator = job.cluster.accelerator
        changed = replace(accelerator, hbm_bandwidth=accelerator.hbm_bandwidth * (1 + 1e-6 * next(variants)))
        return (replace(job, cluster=replace(job.cluster, accelerator=changed)),), {}

    benchmark.pedantic(project, setup=unseen, rounds=50, warmup_rounds=2)
    figures["project, 1F1B p=16 m=128, in process"] = benchmark.stats.stats.median


def test_timeline(benchmark, figures):
    from windtunnel.schedule.registry import build_order
    from windtunnel.step.timeline import ChunkDurations, execute

    order = build_order("1f1b", STAGES, MICROBATCHES)
    benchmark(execute, order, [ChunkDurations(1.0, 1.0, 1.0)] * STAGES, 0.1)
    figures["timeline, 1F1B p=16 m=128"] = benchmark.stats.stats.median


def test_memory_in_process(benchmark, figures):
    """A plan that no cache has seen: its sequence is a tile longer than the last one's."""
    from windtunnel import Job, load_job
    from windtunnel.projection.memory import project_memory

    job = load_job(str(MAIN))
    lengths = count(1)

    def unseen() -> tuple[tuple[Job], dict[str, object]]:
        batch = replace(job.plan.batch, sequence_length=job.plan.batch.sequence_length + 128 * next(lengths))
        return (replace(job, plan=replace(job.plan, batch=batch)),), {}

    benchmark.pedantic(project_memory, setup=unseen, rounds=200, warmup_rounds=5)
    figures["memory of one plan, in process"] = benchmark.stats.stats.median
