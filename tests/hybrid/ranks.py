"""Two ranks that take turns: a real training step of every configuration, then every measurement, round by round.

A measurement runs one unit, optimizer or collective. Units run on each rank for itself, so each has a co-runner on
the other core, as in training; nothing of a training step of two ranks is timed for the profile.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

sys.path.insert(0, str(Path(__file__).parent))

from jobs import CONFIGURATIONS, job_of  # noqa: E402
from truth import trainer  # noqa: E402

from windtunnel.cost.anchor import SLOWDOWN  # noqa: E402
from windtunnel.cost.profile import Entry, Key, Profile  # noqa: E402
from windtunnel.cost.profile_keys import calibration_key, unit_key  # noqa: E402
from windtunnel.cost.simulated import simulated_source  # noqa: E402
from windtunnel.measure.torch.clock import Clock  # noqa: E402
from windtunnel.measure.torch.collectives import BesideTraffic, CollectiveKernel  # noqa: E402
from windtunnel.measure.torch.optimizer import OptimizerKernel  # noqa: E402
from windtunnel.measure.torch.units import UnitKernel  # noqa: E402
from windtunnel.measure.wanted import asked  # noqa: E402
from windtunnel.ops.sizes import sizes  # noqa: E402

Measurement = Callable[[], dict[Key, float]]


def measurements() -> list[Measurement]:
    """What projecting the configurations asks for, each key once."""
    clock = Clock()
    units, optimizers, collectives = {}, {}, {}
    for configuration in CONFIGURATIONS:
        job = job_of(*configuration)
        source = simulated_source(job)
        wanted = asked(job, source, source.placements)
        units |= {sizes(job, unit): None for unit in wanted.units}
        optimizers |= wanted.optimizers
        collectives |= wanted.collectives
    made: list[Measurement] = []
    for sized in units:
        made.append(lambda kernel=UnitKernel(sized, clock), sized=sized: _named(sized, kernel.run()))
    for key, count in optimizers.items():
        name = key.op.partition("/")[2]
        made.append(lambda kernel=OptimizerKernel(name, count, clock), key=key: {key: kernel.run()})
    for key, size in collectives.items():
        kind = key.op.partition("/")[2]
        made.append(lambda kernel=CollectiveKernel(kind, size, clock), key=key: {key: kernel.run()})
    beside = BesideTraffic(8e6, clock)
    made.append(lambda: {calibration_key(SLOWDOWN): beside.run()})
    return made


def _named(sized, seconds):
    return {unit_key(sized, phase): value for phase, value in seconds.items()}


def rank(index: int, folder: str, rounds: int) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=index, world_size=2)
    steps = {configuration: trainer(job_of(*configuration)) for configuration in CONFIGURATIONS}
    measured = measurements()
    truth, profile = defaultdict(list), defaultdict(list)
    shuffled = random.Random(7)
    begin = time.perf_counter()
    for number in range(rounds + 1):
        order: list = [*steps.items(), *measured]
        shuffled.shuffle(order)
        for item in order:
            dist.barrier()
            if callable(item):
                for key, seconds in item().items():
                    profile[key].append(seconds)
            else:
                start = time.perf_counter()
                item[1]()
                seconds = torch.tensor(time.perf_counter() - start)
                dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
                truth[item[0]].append(seconds.item())
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


def profile_of(samples) -> Profile:
    """Medians and percentiles of the samples."""
    entries = []
    for key, values in samples.items():
        cuts = statistics.quantiles(values, n=10)
        middle = statistics.median(values)
        entries.append(Entry(key=key, seconds=middle, low=cuts[0], high=cuts[-1], repeats=len(values)))
    return Profile(device=(("name", "cpu-core"),), software=(), method=(), entries=tuple(entries))


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        found = run(Path(folder), int(sys.argv[1]))
    torch.save(found, sys.argv[2])
