"""Two ranks that take turns: a real training step of every configuration, then every measurement, round by round.

A measurement runs one unit, optimizer or collective. Units run on each rank for itself, so each has a co-runner on
the other core, as in training; nothing of a training step of two ranks is timed for the profile.
"""

from __future__ import annotations

import gc
import random
import statistics
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

sys.path.insert(0, str(Path(__file__).parent))

from jobs import CONFIGURATIONS, PILOTED, job_of
from truth import trainer

from windtunnel.cost.anchor import SLOWDOWN
from windtunnel.cost.profile import Key, Profile
from windtunnel.cost.profile_keys import calibration_key, unit_key
from windtunnel.cost.simulated import simulated_source
from windtunnel.measure.statistics import entry
from windtunnel.measure.torch.clock import Clock
from windtunnel.measure.torch.collectives import BesideTraffic, CollectiveKernel, slowdown
from windtunnel.measure.torch.optimizer import OptimizerKernel
from windtunnel.measure.torch.units import UnitKernel
from windtunnel.measure.wanted import asked
from windtunnel.ops.sizes import Sizes, sizes

LEAST = 0.15
"""Seconds of one sample of a unit: as long as a step of training, so that both meet other work on the machine alike."""

BESIDE = tuple(calibration_key(name) for name in ("compute", "traffic", "both"))

PACE = torch.randn(384, 384)


def pace() -> float:
    """Seconds of a fixed piece of work, both ranks at once: what the machine is worth at this moment."""
    dist.barrier()
    start = time.perf_counter()
    for _ in range(24):
        PACE @ PACE
    return latest(time.perf_counter() - start)


def timed(step: Callable[[], object]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def first_alone(step: Callable[[], object]) -> float:
    """Seconds of one call on the first rank while the other one waits."""
    seconds = timed(step) if dist.get_rank() == 0 else 0.0
    dist.barrier()
    return latest(seconds)


def latest(seconds: float) -> float:
    """The longer of what both ranks took."""
    both = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(both, op=dist.ReduceOp.MAX)
    return both.item()


Measurement = Callable[[], dict[Key, float]]


def measurements() -> list[Measurement]:
    """What projecting the configurations asks for, each key once."""
    clock = Clock()
    units, optimizers, collectives = {}, {}, {}
    for configuration in (*CONFIGURATIONS, *PILOTED):
        job = job_of(*configuration)
        source = simulated_source(job)
        wanted = asked(job, source, source.placements)
        units |= {sizes(job, unit): None for unit in wanted.units}
        optimizers |= wanted.optimizers
        collectives |= wanted.collectives
    beside = BesideTraffic(8e6, clock)
    kernels = {sized: UnitKernel(sized, clock) for sized in units}
    return [
        *(partial(_unit, sized, kernel) for sized, kernel in kernels.items()),
        *(partial(_alone, sized, kernel) for sized, kernel in kernels.items()),
        *(partial(_one, key, OptimizerKernel(_name(key), count, clock)) for key, count in optimizers.items()),
        *(partial(_one, key, CollectiveKernel(_name(key), size, clock)) for key, size in collectives.items()),
        lambda: dict(zip(BESIDE, beside.run(), strict=True)),
    ]


def _name(key: Key) -> str:
    return key.op.partition("/")[2]


def _unit(sized: Sizes, kernel: UnitKernel) -> dict[Key, float]:
    """With a co-runner, the other rank; ranks that wait for each other are as slow as the slower one."""
    return {unit_key(sized, phase, 1): latest(value) for phase, value in kernel.run(LEAST).items()}


def _alone(sized: Sizes, kernel: UnitKernel) -> dict[Key, float]:
    """One rank after the other, the other one waiting."""
    for turn in (0, 1):
        dist.barrier()
        if turn == dist.get_rank():
            found = {unit_key(sized, phase, 0): value for phase, value in kernel.run(LEAST).items()}
    dist.barrier()
    return found


def _one(key: Key, kernel: CollectiveKernel | OptimizerKernel) -> dict[Key, float]:
    return {key: kernel.run(8)}


def rank(index: int, folder: str, rounds: int) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=index, world_size=2)
    steps = {configuration: trainer(job_of(*configuration)) for configuration in (*CONFIGURATIONS, *PILOTED)}
    measured = measurements()
    gc.disable()
    truth, profile = defaultdict(list), defaultdict(list)
    shuffled = random.Random(7)
    begin = time.perf_counter()
    for number in range(rounds + 1):
        order: list = [*steps.items(), *measured]
        shuffled.shuffle(order)
        before = pace()
        for item in order:
            dist.barrier()
            if callable(item):
                taken = item()
            elif item[0] in PILOTED:
                taken = {item[0]: first_alone(item[1])}
            else:
                taken = {item[0]: latest(timed(item[1]))}
            after = pace()
            into = profile if callable(item) else truth
            for name, seconds in taken.items():
                into[name].append((seconds, (before + after) / 2))
            before = after
        gc.collect()
        if index == 0:
            print(f"round {number} of {rounds}: {time.perf_counter() - begin:.0f} s", flush=True)
    torch.save((dict(truth), dict(profile)), f"{folder}/{index}.pt")
    dist.destroy_process_group()


def run(folder: Path, rounds: int):
    """Step seconds by configuration and samples by key of both ranks, the first round left out as warm-up."""
    mp.spawn(rank, args=(str(folder), rounds), nprocs=2)
    both = [torch.load(folder / f"{index}.pt", weights_only=False) for index in (0, 1)]
    truth = {name: samples[1:] for name, samples in both[0][0].items()}
    samples = {key: both[0][1][key][1:] + both[1][1][key][1:] for key in both[0][1]}
    return truth, samples


def steadied(samples) -> list[float]:
    """Seconds at the median pace: each sample by the pace around it, so that drift of the machine cancels."""
    middle = statistics.median(pace for _, pace in samples)
    return [seconds / pace * middle for seconds, pace in samples]


def profile_of(samples) -> Profile:
    """Medians and percentiles of steadied samples, and what traffic costs compute, from the medians of both."""
    series = {key: steadied(values) for key, values in samples.items()}
    series[calibration_key(SLOWDOWN)] = [slowdown(list(zip(*(series.pop(key) for key in BESIDE), strict=True)))]
    entries = tuple(entry(key, values) for key, values in series.items())
    return Profile(device=(("name", "cpu-core"),), software=(), method=(), entries=entries)


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        found = run(Path(folder), int(sys.argv[1]))
    torch.save(found, sys.argv[2])
